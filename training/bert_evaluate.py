"""Held-out figures of a BERT with its pre-training heads.

python -m training.bert_evaluate --model bert-mini-reviews --data DATA                    on Amazon valid and test
python -m training.bert_evaluate --model bert-mini-reviews --shards TOKENS --split test   on prepared token ids
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

import lbzoo
from lbzoo.errors import ConfigError, LbzooError
from lbzoo.models.bert import BertForPreTraining
from lbzoo.text.vocabulary import READINGS
from training import bert_objectives
from training.bert_data import BertStream
from training.cluster import Cluster
from training.sources import amazon_text

ROWS, BATCHES = 32, 64  # of held-out text, enough for a loss to 0.02
MORE_BATCHES = 256  # for a figure that is kept
LENGTH, MASKED = 128, 0.15
SPLITS = ("valid", "test")  # of Amazon


def evaluator(
    model: BertForPreTraining, stream: BertStream, batches: int = BATCHES, cluster: Optional[Cluster] = None
) -> Callable[[], dict[str, float]]:
    """A function that measures the model as it is when it is called: means over tokens and rows, by `NAMES`.

    The rows, their pairs and their masks are the same each time.

    Args:
        batches: at most so many, of one pass.
        cluster: workers that read a share of the batches each; each gets the figures of all.
    """
    cluster = cluster or Cluster()

    @tf.function(autograph=False)
    def totals(batch):
        return bert_objectives.sums(model, batch, batch["weights"], training=False)

    def measure() -> dict[str, float]:
        found = np.zeros(len(bert_objectives.NAMES) + 2)
        for number in range(cluster.index, min(batches, stream.steps_per_epoch), cluster.count):
            batch = stream.batch(number)
            fields = {name: tf.constant(values) for name, values in batch.fields().items()}
            found += [*map(float, totals(fields)), batch.weights.sum(), len(batch.ids)]
        *sums, tokens, rows = cluster.gather(found).sum(0)
        return {
            name: total / (tokens if name.startswith("masked") else rows)
            for name, total in zip(bert_objectives.NAMES, sums)
        }

    return measure


def shards_figures(
    model: BertForPreTraining, shards: Path, split: str = "test", length: int = LENGTH, batches: int = MORE_BATCHES
) -> dict[str, float]:
    """Figures by `bert_objectives.NAMES` on a split of token ids, in rows of `length` tokens, or as many as the model
    reads.

    Raises:
        ConfigError: another kind of model, or text prepared for another one.
        TrainingError: no such folder or split, or too little text.
    """
    _require_heads(model)
    length = min(length, model.config.max_position_embeddings)
    stream = BertStream(shards, ROWS, length, max(1, round(MASKED * length)), seed=1, split=split)
    if stream.shards.vocabulary != model.vocabulary or stream.shards.text != model.text:
        raise ConfigError(
            f"{shards} must be prepared with the vocabulary and the text policy of the model. "
            f"Received: {len(stream.shards.vocabulary)} pieces of {stream.shards.text} text; the model has "
            f"{len(model.vocabulary or ())} of {model.text}. Prepare it with --vocab and the model's vocab.txt."
        )
    return evaluator(model, stream, batches)()


def amazon_figures(
    model: BertForPreTraining, data: Path, split: str, length: int = LENGTH, batches: int = MORE_BATCHES
) -> dict[str, float]:
    """`shards_figures` on every review of an Amazon split, labelled or not."""
    from training.prepare_bert import prepare
    from training.prepare_sentiment import write_shards

    _require_heads(model)
    with tempfile.TemporaryDirectory() as folder:
        text, tokens = Path(folder) / "text", Path(folder) / "tokens"
        write_shards(list(amazon_text(data, split)), text, seed=1, weights=None, note={})
        prepare(text, tokens, model.vocabulary, cased=not READINGS[model.text][0])
        return shards_figures(model, tokens, "train", length, batches)  # the only split of this folder


def _require_heads(model: Any) -> None:
    if not isinstance(model, BertForPreTraining):
        raise ConfigError(
            f"only a BERT with both heads of pre-training is measured here. Received: {type(model).__name__}."
        )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 for a model or a folder that does not work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint with both heads of pre-training")
    parser.add_argument("--data", type=Path, help="folder of the review sets (default: LBZOO_DATA)")
    parser.add_argument("--shards", type=Path, help="folder of training.prepare_bert, read instead of the sets")
    parser.add_argument("--split", default="test", help="of --shards (default: test)")
    parser.add_argument("--length", type=int, default=LENGTH, help=f"tokens of a row (default: {LENGTH})")
    parser.add_argument(
        "--batches", type=int, default=MORE_BATCHES, help=f"of {ROWS} rows, at most (default: {MORE_BATCHES})"
    )
    options = parser.parse_args(arguments)
    data = options.data or os.environ.get("LBZOO_DATA")
    if not (options.shards or data):
        parser.error("--shards FOLDER, --data FOLDER or LBZOO_DATA says where the text is")
    limits = (options.length, options.batches)
    try:
        model = lbzoo.load(options.model)
        if options.shards:
            _print(options.split, shards_figures(model, options.shards, options.split, *limits))
        for split in () if options.shards else SPLITS:
            _print(f"amazon {split}", amazon_figures(model, Path(data), split, *limits))
    except (LbzooError, OSError) as error:
        print(f"bert_evaluate: error: {error}", file=sys.stderr)
        return 1
    return 0


def _print(name: str, figures: Mapping[str, float]) -> None:
    print(f"{name}: " + ", ".join(f"{figure} {value:.4f}" for figure, value in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
