"""Negation: 200 pairs of sentences that differ by a turn such as "not" or "could have been", and who gets them right.

The pairs (`negation_pairs.tsv`) were written for this, one by one. In most the negated sentence says the opposite of
the plain one, praise and complaint equally often; under "not only, but" it says the same.

python -m training.negation --model mlstm-512-reviews                 shares of the pairs, by kind and in all
python -m training.negation --model mlstm-512-reviews --data DATA     beside those of the teacher, fitted on DATA first
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

import lbzoo
from lbzoo.errors import ConfigError, LbzooError
from lbzoo.text.clean import encode
from lbzoo.transfer.labels import NEGATIVE, POSITIVE
from training import teacher
from training.sources import training_documents

PAIRS = Path(__file__).with_name("negation_pairs.tsv")
PRAISE, COMPLAINT, ALL = "negated praise", "negated complaint", "all"  # stand below the kinds


@dataclasses.dataclass(frozen=True)
class Pair:
    """A sentence, its negated counterpart, and the label of each; `kind` says by what it is negated."""

    kind: str
    plain: str
    plain_label: str
    negated: str
    negated_label: str


@dataclasses.dataclass(frozen=True)
class Shares:
    """Percent of `pairs` whose plain, negated, both labels are right; where the positive sentence scores higher."""

    pairs: int
    plain: float
    negated: float
    both: float
    order: Optional[float]  # None where both sentences of every pair have one label


def read_pairs(path: Path = PAIRS) -> list[Pair]:
    """The pairs in the order of the file."""
    with open(path, encoding="utf-8", newline="") as file:
        return [Pair(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def sentences(pairs: Sequence[Pair]) -> list[str]:
    """Plain and negated by turns, in the order that `shares_by_kind` takes scores in."""
    return [text for pair in pairs for text in (pair.plain, pair.negated)]


def shares_by_kind(pairs: Sequence[Pair], scores: Sequence[float]) -> dict[str, Shares]:
    """What the scores get right of each kind, in the order of the file, of each way that the sense turns, and of `ALL`.

    Args:
        pairs: one or more.
        scores: [2 * pairs] of `sentences(pairs)`, above zero for positive.

    Raises:
        ValueError: another number of scores.
    """
    if len(scores) != 2 * len(pairs):
        raise ValueError(f"two scores a pair are needed. Received: {len(scores)} scores for {len(pairs)} pairs.")
    scores = np.asarray(scores).reshape(-1, 2)
    positive = np.array([[label == POSITIVE for label in (p.plain_label, p.negated_label)] for p in pairs])
    right = (scores > 0) == positive
    opposite = positive[:, 0] != positive[:, 1]
    order = np.where(positive[:, 0], scores[:, 0] > scores[:, 1], scores[:, 1] > scores[:, 0])
    kinds = np.array([pair.kind for pair in pairs])
    chosen = {kind: kinds == kind for kind in dict.fromkeys(kinds.tolist())}
    chosen.update({PRAISE: opposite & positive[:, 0], COMPLAINT: opposite & positive[:, 1]})
    chosen[ALL] = np.ones(len(pairs), bool)
    columns = (right[:, 0], right[:, 1], right.all(axis=1))
    return {
        kind: Shares(int(rows.sum()), *(_percent(c[rows]) for c in columns), _percent(order[rows & opposite]))
        for kind, rows in chosen.items()
        if rows.any()
    }


def _percent(right: np.ndarray) -> Optional[float]:
    return 100 * float(right.mean()) if right.size else None


def classifier_scores(classifier: Any, texts: Sequence[str]) -> np.ndarray:
    """Scores [texts] of a sentiment classifier, above zero for positive.

    Raises:
        ConfigError: its labels are others than "negative" and "positive".
    """
    classes = classifier.classes_.tolist()
    if sorted(map(str, classes)) != [NEGATIVE, POSITIVE]:
        raise ConfigError(
            f"negation is measured on checkpoints that answer {NEGATIVE!r} or {POSITIVE!r}. Received: {classes}."
        )
    scores = classifier.decision_function(texts)
    return scores if classes[1] == POSITIVE else -scores


def teacher_scores(data: Path, texts: Sequence[str]) -> np.ndarray:
    """Scores [texts] of the bag of words, fitted on the training labels of the review sets in `data`."""
    weights, intercept = teacher.fit(list(training_documents(data)))
    return np.array([teacher.score(encode(text, "reviews"), weights, intercept) for text in texts])


def table(found: Mapping[str, Mapping[str, Shares]]) -> str:
    """One line a kind, and for each of who answered the shares of `shares_by_kind`."""
    kinds = list(next(iter(found.values())))
    width = max(map(len, kinds))
    names = [field.name for field in dataclasses.fields(Shares)][1:]
    lines = [" " * (width + 7) + "".join(f"  {who:>{8 * len(names)}}" for who in found)]
    lines.append(f"{'kind':{width}}  pairs" + ("  " + "".join(f"{name:>8}" for name in names)) * len(found))
    for kind in kinds:
        rows = [dataclasses.astuple(shares[kind]) for shares in found.values()]
        cells = "".join("  " + "".join(f"{_cell(value):>8}" for value in row[1:]) for row in rows)
        lines.append(f"{kind:{width}}  {rows[0][0]:5}{cells}")
    return "\n".join(lines)


def _cell(percent: Optional[float]) -> str:
    return "-" if percent is None else f"{percent:.1f}"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where the model or the data are not what they have to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name or folder of a checkpoint that classifies sentiment")
    parser.add_argument("--data", type=Path, help="folder of the review sets: fit the teacher, and print it beside")
    options = parser.parse_args(arguments)
    pairs = read_pairs()
    texts = sentences(pairs)
    try:
        scores = {Path(options.model).name: classifier_scores(lbzoo.SentimentClassifier(options.model), texts)}
        if options.data is not None:
            scores["bag of words"] = teacher_scores(options.data, texts)
    except (LbzooError, OSError) as error:
        print(f"negation: error: {error}", file=sys.stderr)
        return 1
    print(table({who: shares_by_kind(pairs, values) for who, values in scores.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
