"""A checkpoint's features in a scikit-learn pipeline: `python examples/features_in_a_pipeline.py tickets.csv`.

The checkpoint stays as it is; what is learnt is a logistic regression on its features, whose penalty is chosen by
cross-validation within each part that is trained on.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lbzoo

HERE = Path(__file__).resolve().parent


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=HERE / "tickets.csv", help="with the columns text, label")
    parser.add_argument("--model", default="mlstm-512-reviews", help="an mLSTM or a BERT")
    given = parser.parse_args(arguments)

    with open(given.file, encoding="utf-8-sig", newline="") as file:  # a spreadsheet may begin it with a mark
        rows = list(csv.DictReader(file))
    if not rows or not {"text", "label"} <= set(rows[0]):
        parser.error(
            f"{given.file} needs rows and the columns text, label. Received: {list(rows[0]) if rows else rows}"
        )
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]

    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    search = GridSearchCV(regression, {"logisticregression__C": [1e-4, 1e-3, 1e-2, 1e-1]}, cv=3)
    pipeline = make_pipeline(lbzoo.FeatureExtractor(given.model), search)  # texts in, labels out

    scores = cross_val_score(pipeline, texts, labels, cv=3)
    print(f"accuracy {scores.mean():.2f} (from {scores.min():.2f} to {scores.max():.2f} in 3 folds)")
    pipeline.fit(texts, labels)
    for question in ("Where is my parcel now?", "I was charged twice.", "The lid is broken."):
        print(f"{question} -> {pipeline.predict([question])[0]}")


if __name__ == "__main__":
    try:
        main()
    except (lbzoo.LbzooError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
