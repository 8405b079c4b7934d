"""The sentiment of every row of a csv file, in two columns more: `python examples/sentiment_of_csv.py reviews.csv`.

`lbzoo predict --file reviews.csv --column text` does the same from the command line.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import lbzoo

HERE = Path(__file__).resolve().parent


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=HERE / "reviews.csv")
    parser.add_argument("--column", default="text")
    parser.add_argument("--output", type=Path, default=Path("with-sentiment.csv"))
    given = parser.parse_args(arguments)

    with open(given.file, encoding="utf-8-sig", newline="") as file:  # a spreadsheet may begin it with a mark
        rows = list(csv.DictReader(file))
    if not rows or given.column not in rows[0]:
        told = list(rows[0]) if rows else rows
        parser.error(f"{given.file} needs rows and the column {given.column} (--column). Received: {told}")
    texts = [row[given.column] for row in rows]

    classifier = lbzoo.SentimentClassifier()  # the checkpoint that ships in the package
    positive = list(classifier.classes_).index("positive")
    for row, shares in zip(rows, classifier.predict_proba(texts)):
        row["sentiment"] = classifier.classes_[shares.argmax()]
        row["positive"] = f"{shares[positive]:.3f}"

    with open(given.output, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    share = sum(row["sentiment"] == "positive" for row in rows) / len(rows)
    print(f"{len(rows)} rows, {share:.0%} positive: {given.output}")


if __name__ == "__main__":
    try:
        main()
    except (lbzoo.LbzooError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
