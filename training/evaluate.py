"""Held-out figures of an mLSTM: bits per character of a text, accuracy of a read-out.

python -m training.evaluate --model mlstm-512-reviews --data DATA      bits per character on Amazon valid and test
python -m training.evaluate --model mlstm-512-reviews --shards SHARDS  the same on the test split of prepared shards
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Optional

import numpy as np
import tensorflow as tf

import lbzoo
from lbzoo.errors import ConfigError, LbzooError
from lbzoo.features import FeatureExtractor
from lbzoo.models.mlstm import MLSTMLanguageModel
from training.cluster import Cluster
from training.objectives import BITS, language_model_loss
from training.shards import open_shards
from training.sources import amazon_text


def bits_per_character(
    model: MLSTMLanguageModel,
    texts: Iterable[bytes],
    rows: int = 64,
    window: int = 256,
    cluster: Optional[Cluster] = None,
) -> float:
    """Mean bits that `model` needs for each byte of the texts, read one after another with carried state.

    The texts are joined and cut into `rows` equal stripes; a stripe starts from a zero state, and so does each text.
    At most rows - 1 bytes at the end, and the last window where it is short, are left out.

    Args:
        cluster: workers that read a share of the stripes each, in equally many steps; each gets the mean over all.
    """
    cluster = cluster or Cluster()
    joined = b"".join(texts)
    stripe = (len(joined) - 1) // rows
    if stripe < 1:
        raise ValueError(f"too little text for {rows} rows. Received: {len(joined)} bytes.")
    window = min(window, stripe)
    stream = np.frombuffer(joined, np.uint8)
    mine = np.arange(rows)[cluster.index :: cluster.count]
    begins = mine[:, None] * stripe

    @tf.function
    def step(ids, next_ids, reset, c, h):
        logits, state = model(ids, state=(c, h), reset=reset)
        return language_model_loss(logits, next_ids), state

    state, losses = model.initial_state(len(mine)), []
    for start in range(0, stripe - window + 1, window) if len(mine) else ():
        places = begins + np.arange(start, start + window + 1)[None, :]
        block = stream[places].astype(np.int32)
        reset = block[:, :-1] == ord("\n")  # a text begins with the only newline in it
        loss, state = step(block[:, :-1], block[:, 1:], reset, *state)
        losses.append(float(loss))
    return float(cluster.gather(len(mine) * np.mean(losses) if losses else 0.0).sum()) / rows * BITS


def read_out_accuracy(
    model: MLSTMLanguageModel,
    w: np.ndarray,
    b: float,
    texts: Sequence[bytes],
    positive: Sequence[bool],
    cluster: Optional[Cluster] = None,
) -> float:
    """Share of the texts whose last hidden state h . w + b has the sign of their label; workers share the texts."""
    cluster = cluster or Cluster()
    own = list(texts)[cluster.index :: cluster.count]
    right = 0
    if own:
        hidden = FeatureExtractor(model, state="hidden").transform(own)
        right = np.sum((hidden @ w + b > 0) == np.asarray(positive)[cluster.index :: cluster.count])
    return float(cluster.gather(right).sum()) / len(texts)


def in_fixed_order(texts: Iterable[bytes]) -> list[bytes]:
    """The texts by their hashes: where a text stands decides which few bytes are left out, or read after a cut."""
    return sorted(texts, key=lambda text: hashlib.sha256(text).digest())


def amazon_bits(model: MLSTMLanguageModel, data: Path, split: str) -> float:
    """Bits per character on every review of an Amazon split, labelled or not."""
    return bits_per_character(model, in_fixed_order(document.text for document in amazon_text(data, split)))


def shards_bits(model: MLSTMLanguageModel, folder: Path, split: str = "test") -> float:
    """Bits per character on a split of what `training.prepare_reviews` wrote; what `amazon_bits` says of equal texts.

    Raises:
        TrainingError: no such folder or split.
        ConfigError: it was prepared by another text policy than the model's.
    """
    shards = open_shards(folder, split)
    if shards.index["text_policy"] != model.text:
        raise ConfigError(
            f"{folder} was prepared with --text {shards.index['text_policy']}; the model reads {model.text!r}. "
            f"Prepare it with --text {model.text}."
        )
    return bits_per_character(model, in_fixed_order(shards.documents()))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where the model or the text is not what it has to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name or folder of a checkpoint")
    parser.add_argument("--data", type=Path, help="folder of the review sets (default: LBZOO_DATA)")
    parser.add_argument("--shards", type=Path, help="folder of training.prepare_reviews, read instead of the sets")
    parser.add_argument("--split", default="test", help="of --shards (default: test)")
    options = parser.parse_args(arguments)
    if options.shards is None:
        options.data = options.data or os.environ.get("LBZOO_DATA")
        if not options.data:
            parser.error("--shards FOLDER, --data FOLDER or LBZOO_DATA says where the text is")
    try:
        model = lbzoo.load(options.model)
        if options.shards is not None:
            bits = shards_bits(model, options.shards, options.split)
            print(f"{options.shards.name} {options.split} bpc {bits:.3f}")
        for split in ("valid", "test") if options.data else ():
            print(f"amazon {split} bpc {amazon_bits(model, Path(options.data), split):.3f}")
    except (LbzooError, ValueError, OSError) as error:
        print(f"evaluate: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
