"""A pre-trained BERT -> `lbzoo/bundled/<name>`, measured, with its card and its entry in the manifest.

    python -m training.publish_bert runs/mini-512-export --name bert-mini-reviews --data DATA \\
        --training training/cards/bert-mini-reviews.json

As `training.publish` does for an mLSTM: every figure is measured here and now, and stored with the command that prints
it again. The file given by --training holds what cannot be measured: description, license, training_data, notes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from lbzoo import checkpoint
from training.bert_evaluate import SPLITS, amazon_figures
from training.publish import ROOT, bundle, command_line

# by `bert_objectives.NAMES`: metric, factor, decimals
METRICS = {
    "masked_lm": ("masked-lm loss", 1, 3),
    "masked_lm_accuracy": ("masked-lm accuracy", 100, 2),
    "next_sentence_accuracy": ("next-sentence accuracy", 100, 2),
}


def results(folder: Path, name: str, data: Path) -> list[dict[str, Any]]:
    """Masked-LM loss (nats a token) and accuracy, next-sentence accuracy, on Amazon's valid and test splits."""
    model, found = checkpoint.load(folder), []
    for split in SPLITS:
        figures = amazon_figures(model, data, split)
        for figure, (metric, factor, decimals) in METRICS.items():
            result = {"dataset": "amazon", "split": split, "metric": metric}
            result.update(value=round(factor * figures[figure], decimals), source="ours")
            found.append({**result, "command": f"python -m training.bert_evaluate --model {name} --data DATA"})
    return found


def publish(folder: Path, name: str, data: Path, training: Mapping[str, Any], root: Path = ROOT) -> dict[str, Any]:
    """Measure `folder`, write it with its card as a bundled checkpoint of the checkout `root`, and enter it into the
    manifest there; returns the card."""
    card = {**training, "results": results(folder, name, data)}
    bundle(checkpoint.load(folder), name, card, root=root)
    return card


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    return command_line(__doc__, "training.pretrain_bert", publish, arguments)


if __name__ == "__main__":
    sys.exit(main())
