"""A checkpoint trained on labels of your own, saved, and used again: `python examples/own_labels.py tickets.csv`.

`lbzoo finetune` and `lbzoo predict --model my-model` do the same from the command line.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from sklearn.metrics import classification_report
from sklearn.model_selection import train_test_split

import lbzoo

HERE = Path(__file__).resolve().parent


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=HERE / "tickets.csv", help="with the columns text, label")
    parser.add_argument("--model", default="mlstm-512-reviews", help="an mLSTM or a BERT")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("my-model"))
    given = parser.parse_args(arguments)

    with open(given.file, encoding="utf-8-sig", newline="") as file:  # a spreadsheet may begin it with a mark
        rows = list(csv.DictReader(file))
    if not rows or not {"text", "label"} <= set(rows[0]):
        parser.error(
            f"{given.file} needs rows and the columns text, label. Received: {list(rows[0]) if rows else rows}"
        )
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    train_texts, test_texts, train_labels, test_labels = train_test_split(
        texts, labels, test_size=0.25, stratify=labels, random_state=0
    )

    # a tenth of what it is given is held out to choose the epoch; what is measured on is none of it
    classifier = lbzoo.TextClassifier(given.model, epochs=given.epochs, random_state=0)
    classifier.fit(train_texts, train_labels)
    for row in classifier.history_:
        print(f"epoch {row['epoch']} ({row['trained']}): held-out accuracy {row['held_out_accuracy']:.2f}")
    print(classification_report(test_labels, classifier.predict(test_texts), zero_division=0))

    classifier.save(given.output)
    again = lbzoo.TextClassifier.load(given.output)  # refused where it no longer answers as it did
    question = "Where is my parcel now?"
    print(f"{question} -> {again.predict([question])[0]}")


if __name__ == "__main__":
    try:
        main()
    except (lbzoo.LbzooError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
