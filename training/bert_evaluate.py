"""Held-out figures of a BERT with its pre-training heads, on a split of prepared token ids.

python -m training.bert_evaluate --model bert-mini-reviews --shards TOKENS --split test
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Callable, Optional, Sequence

import numpy as np
import tensorflow as tf

import lbzoo
from lbzoo.errors import ConfigError, LbzooError
from lbzoo.models.bert import BertForPreTraining
from training import bert_objectives
from training.bert_data import BertStream
from training.cluster import Cluster

ROWS, BATCHES = 32, 64  # of held-out text, enough for a loss to 0.02


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
            fields = {name: tf.constant(values) for name, values in dataclasses.asdict(batch).items()}
            found += [*map(float, totals(fields)), batch.weights.sum(), len(batch.ids)]
        *sums, tokens, rows = cluster.gather(found).sum(0)
        return {
            name: total / (tokens if name.startswith("masked") else rows)
            for name, total in zip(bert_objectives.NAMES, sums)
        }

    return measure


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 for a model or a folder that does not work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint with both heads of pre-training")
    parser.add_argument("--shards", type=Path, required=True, help="folder of token ids, see training/prepare_bert.py")
    parser.add_argument("--split", default="test")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row (default: 128)")
    parser.add_argument("--batches", type=int, default=256, help=f"of {ROWS} rows, at most (default: 256)")
    options = parser.parse_args(arguments)
    try:
        model = lbzoo.load(options.model)
        if not isinstance(model, BertForPreTraining):
            raise ConfigError(
                f"only a BERT with both heads of pre-training is measured here. Received: {options.model}."
            )
        predictions = max(1, round(0.15 * options.length))
        stream = BertStream(options.shards, ROWS, options.length, predictions, seed=1, split=options.split)
        if stream.shards.vocabulary != model.vocabulary or stream.shards.text != model.text:
            raise ConfigError(
                f"{options.shards} was prepared with another vocabulary than the model's. Received: {options.model}. "
                f"Prepare it with --vocab and the model's vocab.txt."
            )
        figures = evaluator(model, stream, options.batches)()
    except (LbzooError, OSError) as error:
        print(f"bert_evaluate: error: {error}", file=sys.stderr)
        return 1
    print(f"{options.split}: " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
