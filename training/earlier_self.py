"""A checkpoint as the teacher of the next one: what its own read-out says of a text after every byte.

On held-out sentences a trained network is right more often than the bag of words that taught it
(`training.teacher --model`), so it can teach the short texts, and, together with the bag, the texts without a label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from lbzoo import _keras  # noqa: F401  chooses the Keras that the rest stands on
from lbzoo.errors import ConfigError
from lbzoo.loading import load_with_folder
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.text.batching import batches, chunks
from lbzoo.text.bytes import pack
from lbzoo.transfer import probe_file
from training.objectives import SentimentReadOut

ROWS, WINDOW = 256, 256


def running_scores(model: str, texts: Sequence[bytes], precision: str = "mixed_bfloat16") -> list[np.ndarray]:
    """Log-odds of being positive of what has been read of each text, at each of its bytes: float16 [len(text)] each.

    Args:
        model: name or folder of a checkpoint whose probe is a read-out of two classes on the last hidden state.
        texts: as the model reads them; each starts from a zero state.
        precision: Keras policy name for the products.

    Raises:
        ConfigError: the checkpoint is no mLSTM, or its probe is of another kind.
        CheckpointError: it has none.
    """
    network, folder = load_with_folder(model)
    if not isinstance(network, MLSTMLanguageModel):
        raise ConfigError(f"an mLSTM is needed to score every byte. Received: {model!r}, a {type(network).__name__}.")
    network = network.folded().in_precision(precision)
    read_out = SentimentReadOut(network.config.units)
    read_out.start_from(probe_file.load(folder))

    row = tf.TensorSpec([None, network.config.units], tf.float32)
    window = [tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.bool)]

    @tf.function(input_signature=[*window, row, row])
    def step(ids, mask, c, h):
        rows = tf.shape(ids)[0]
        hidden, state = network.run(ids, state=(c[:rows], h[:rows]), mask=mask, collect="hidden")
        return tf.cast(read_out(hidden), tf.float16), state

    scores = [np.zeros(len(text), np.float16) for text in texts]
    with tqdm(total=sum(map(len, texts)), unit="B", unit_scale=True, desc="score", disable=None) as bar:
        for index in batches([len(text) for text in texts], ROWS):
            packed, state = pack([texts[i] for i in index]), network.initial_state(len(index))
            for start, stop, running in chunks(packed.lengths, WINDOW):
                found, state = step(*packed.cut(running, start, stop), *state)
                for i, row in zip(index, found.numpy()):
                    part = scores[i][start:stop]
                    part[:] = row[: len(part)]
            bar.update(int(packed.lengths.sum()))
    return scores
