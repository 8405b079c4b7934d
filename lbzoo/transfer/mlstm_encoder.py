"""The mLSTM under fine-tuning: a text's features are its last hidden state.

Gradients go back through the last `window` bytes of a text, as in Dai & Le 2015 ("Semi-supervised Sequence Learning",
section 4: 400 steps from the end). The bytes before them are read, whole and with the present weights, and their state
is carried in.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from lbzoo.errors import ConfigError
from lbzoo.states import DTYPES, StateReader, check_options, check_size
from lbzoo.text.batching import chunks
from lbzoo.text.bytes import pack
from lbzoo.text.pairs import Input, encode_input

_CHUNK = 256  # steps of one call where no gradient is needed
DEFAULTS = {  # what did best of what was tried on SST and IMDB
    "epochs": 4,
    "batch_size": 32,
    "learning_rate": 3e-4,
    "unfreeze": "gradual",
    "dropout": 0.3,
    "weight_decay": 0.0,
}
STATE = "hidden"  # bounded, so that a head is fitted in few steps; on SST dev as good as the cell state or better


class MLSTMEncoder:
    """`lbzoo.transfer.encoders.Encoder` of an `MLSTMLanguageModel`.

    Args:
        model: left as it is; what is trained is a folded copy.
        dtype: "float32" or "bfloat16", what matrix products run in.
        window: bytes at the end of a text through which gradients go back.

    Raises:
        ConfigError: an option outside these.
    """

    def __init__(self, model: Any, dtype: str = "float32", window: int = 256) -> None:
        check_options(dtype=dtype)
        check_size("window", window)
        ready = model.folded().in_precision(DTYPES[dtype])
        self.model = copy.deepcopy(ready) if ready is model else ready
        self.width, self.window = self.model.config.units, int(window)
        self.limit, self.defaults = None, DEFAULTS
        self.reads = {"state": STATE, "pool": "last", "tanh": False}
        self._reader = StateReader(self.model, **self.reads)
        state = tf.TensorSpec([None, self.width], tf.float32)
        self.signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.bool), state, state]

    def encode(self, inputs: Sequence[Input]) -> tuple[list[bytes], int]:
        """(The bytes that the model reads; 0: none is cut)."""
        return [encode_input(each, self.model.text) for each in inputs], 0

    def read(self, rows: Sequence[bytes], batch_size: int) -> np.ndarray:
        """Last hidden states, float32 [rows, units]."""
        return self._reader.read(rows, batch_size)

    def batch(self, rows: Sequence[bytes]) -> tuple[np.ndarray, ...]:
        """(ids int32 [rows, time], mask bool [rows, time], c, h float32 [rows, units] before the first of them)."""
        tails = pack([row[-self.window :] for row in rows])
        ids, mask = tails.cut(len(rows), 0, max(int(tails.lengths.max()), 1))  # a loop of no step has no shape
        return (ids, mask, *self._before([row[: -self.window] for row in rows]))

    def forward(
        self, ids: tf.Tensor, mask: tf.Tensor, c: tf.Tensor, h: tf.Tensor, seed: Optional[tf.Tensor] = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """(last hidden states, float32 [rows, units]; mean next-byte loss in nats over the bytes given); no dropout."""
        hidden, (_, last) = self.model.mlstm(ids, state=(c, h), mask=mask)
        if not self.model.config.output:
            return last, tf.zeros([])
        real = tf.cast(mask[:, 1:], tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], self.model.logits(hidden[:, :-1]))
        return last, tf.reduce_sum(losses * real) / tf.maximum(tf.reduce_sum(real), 1.0)

    def groups(self) -> list[list[tf.Variable]]:
        """The recurrent layer, then the embedding of bytes."""
        weights = self.model.mlstm.named_weights()
        embedding = weights.pop("embedding")
        return [list(weights.values()), [embedding]]

    def language_model(self) -> list[tf.Variable]:
        """The output layer."""
        if not self.model.config.output:
            raise ConfigError(
                "language_model_weight needs a model with an output layer. Received: a model with output=False. "
                "Set language_model_weight=0."
            )
        weights = self.model.named_weights()
        return [weights["out_w"], weights["out_b"]]

    def _before(self, rows: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """(c, h) after these byte strings, read in chunks of bounded memory; zeros where there are none."""
        order = np.argsort([-len(row) for row in rows], kind="stable")
        packed = pack([rows[i] for i in order])
        c, h = (np.zeros((len(rows), self.width), np.float32) for _ in range(2))
        for start, stop, active in chunks(packed.lengths, _CHUNK):
            state = self._reader.step(*packed.cut(active, start, stop), c[:active], h[:active])
            c[:active], h[:active] = (value.numpy() for value in state)
        back = np.argsort(order)
        return c[back], h[back]
