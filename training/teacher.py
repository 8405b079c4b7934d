"""The teacher: a bag of words and word pairs, fitted on the training labels, that scores a text after every word.

Its running score is the target of the mLSTM's sentiment read-out at every byte. Where a document has a label, the
score is bent towards it (linearly over the text), so that the end of the document agrees with what a person said.

    python -m training.teacher --data DATA                              fits it; its accuracy on the test splits
    python -m training.teacher --data DATA --model mlstm-1024-reviews   on held-out texts, beside a checkpoint's and
                                                                        that of the two together: who could teach next
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import POSITIVE, SPLITS, read_task
from training.sources import Document, task_folder, training_documents

WORD = re.compile(rb"[a-z0-9]+(?:'[a-z]+)?|[!?]")


def words(text: bytes) -> list[bytes]:
    """Lower-case words, and each ! and ?."""
    return WORD.findall(text.lower())


def features(text: bytes) -> list[bytes]:
    """Words and pairs of neighbours."""
    found = words(text)
    return found + [a + b" " + b for a, b in zip(found, found[1:])]


def fit(documents: Sequence[Document], max_features: int = 400_000) -> tuple[dict[bytes, float], float]:
    """Logistic regression on which features occur, over the labelled documents.

    Short phrases count less than whole reviews, so that the many phrases of the treebank do not drown them.

    Returns:
        (weight of each feature, intercept), in log-odds of being positive.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    labelled = [d for d in documents if d.score]
    # latin-1 is scikit-learn's detour for bytes: one character a byte, there and back
    vectorizer = CountVectorizer(
        analyzer=lambda text: features(text.encode("latin-1")),
        encoding="latin-1",
        min_df=4,
        max_features=max_features,
        binary=True,
        dtype=np.float32,
    )
    counts = vectorizer.fit_transform(d.text for d in labelled)
    weights = [0.3 if d.source == "sst-phrase" else 1.0 for d in labelled]
    model = LogisticRegression(C=0.05, solver="liblinear", max_iter=200)
    model.fit(counts, [d.score > 0 for d in labelled], sample_weight=weights)
    return dict(zip(vectorizer.get_feature_names_out(), model.coef_[0].tolist())), float(model.intercept_[0])


def running_score(text: bytes, weights: Mapping[bytes, float], label: float | None = None) -> np.ndarray:
    """The teacher's log-odds of what has been read before each byte's word ended: float16 [len(text)].

    Args:
        text: a document's bytes.
        weights: of words and pairs, from `fit`.
        label: log-odds of the document's label, or None.
    """
    ends, steps, seen, previous = [0], [0.0], set(), None
    for match in WORD.finditer(text.lower()):
        word, gain = match.group(), 0.0
        for feature in (word,) if previous is None else (word, previous + b" " + word):
            if feature not in seen:
                seen.add(feature)
                gain += weights.get(feature, 0.0)
        previous = word
        ends.append(match.end())
        steps.append(gain)
    scores = np.cumsum(steps)
    lengths = np.diff(np.append(ends, len(text)))
    return bent(np.repeat(scores, lengths), label)


def bent(scores: np.ndarray, label: float | None) -> np.ndarray:
    """A running score as the target of a text with this label, if it has one: float16 of the same length."""
    if label is not None and len(scores):
        scores = scores + np.linspace(0, 1, len(scores)) * _missing(float(scores[-1]), label)
    return np.clip(scores, -12, 12).astype(np.float16)


def _missing(score: float, label: float) -> float:
    """What to add at the end of a text so that its score agrees with the label: nothing if it is as sure already."""
    if label == 0:
        return -score
    return label - score if score * np.sign(label) < abs(label) else 0.0


def score(text: bytes, weights: Mapping[bytes, float], intercept: float) -> float:
    """Log-odds of the whole text being positive, as `fit` has it."""
    return sum(weights.get(feature, 0.0) for feature in set(features(text))) + intercept


def accuracies(weights: Mapping[bytes, float], intercept: float, data: Path) -> dict[str, float]:
    """Percent of the test split of each task that the teacher's score at the end of the text gets right."""
    found = {}
    for task in SPLITS:
        texts, labels = read_task(task, data / task_folder(task), "test")
        scores = [score(encode(text, "reviews"), weights, intercept) for text in texts]
        right = [(value > 0) == (label == POSITIVE) for value, label in zip(scores, labels)]
        found[task] = 100 * float(np.mean(right))
    return found


def beside(scores: np.ndarray, others: np.ndarray, positive: Sequence[bool]) -> tuple[float, float, float]:
    """Percent that the sign of log-odds gets right: of `scores`, of `others`, and of their sum."""
    positive = np.asarray(positive)
    return tuple(100 * float(np.mean((values > 0) == positive)) for values in (scores, others, scores + others))


def _compare(weights: Mapping[bytes, float], intercept: float, data: Path, model: str) -> None:
    """Print, for each held-out set, who is right how often."""
    import lbzoo
    from training.heldout import held_out

    classifier = lbzoo.SentimentClassifier(model)
    column = classifier.classes_.tolist().index(POSITIVE)
    for name, (texts, positive) in held_out(data).labelled.items():
        chance = np.clip(classifier.predict_proba(texts)[:, column].astype(np.float64), 1e-9, 1 - 1e-9)
        bag = np.array([score(text, weights, intercept) for text in texts])
        teacher, network, together = beside(bag, np.log(chance / (1 - chance)), positive)
        print(f"{name} held out: teacher {teacher:.2f}, {model} {network:.2f}, together {together:.2f}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the review sets")
    parser.add_argument("--model", help="compare with this checkpoint on held-out texts, and read no test split")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data FOLDER, or LBZOO_DATA, says where the review sets are")
    weights, intercept = fit(list(training_documents(options.data)))
    print(f"{len(weights)} words and word pairs")
    if options.model:
        _compare(weights, intercept, options.data, options.model)
        return
    for task, value in accuracies(weights, intercept, options.data).items():
        print(f"{task} test accuracy {value:.2f}")


if __name__ == "__main__":
    main()
