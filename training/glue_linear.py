"""What GLUE comes to without fine-tuning: a linear model on the frozen features of a checkpoint, or on TF-IDF.

    python -m training.glue_linear --features mlstm-1024-reviews --task rte --data GLUE --output runs/rte-frozen
    python -m training.glue_linear --features tfidf --task rte --data GLUE --output runs/rte-tfidf

Features of a checkpoint are those of `lbzoo.FeatureExtractor`, each brought to mean 0 and variance 1 on the training
rows; TF-IDF is of words and pairs of words. Of the two texts u and v of a pair they are [u, v, |u - v|, u * v].
A logistic regression stands on them, or a ridge regression where scores are asked for (STS-B). Its penalty is the one
with the best mean of the task's metrics in cross-validation on train; dev is measured once, after a fit on all of it.
The folds follow from the seed, and all else is the same with every seed. The results have the form of
`training.finetune_glue`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import lbzoo
from lbzoo.errors import ConfigError
from lbzoo.transfer.glue import GlueText, Split, Task, find_task
from lbzoo.transfer.glue_files import write_submission
from lbzoo.transfer.glue_metrics import score
from training import glue_output, glue_summary
from training.command import ended
from training.finetune_glue import CONFIG
from training.glue_data import Data, read_data

TFIDF = "tfidf"
WORD = r"\w+|[^\w\s]"  # or a mark
FOLDS, MAX_ITER = 5, 1000
C_OF_FEATURES = tuple(10.0**power for power in range(-6, 1))  # inverse penalties; of a ridge, its alpha is 1 / C
C_OF_TFIDF = tuple(10.0**power for power in range(-2, 3))


class TfidfOfTexts(TransformerMixin, BaseEstimator):
    """Texts, or pairs, -> TF-IDF of words and pairs of words, sparse float64; the words are learnt from both texts."""

    def fit(self, texts: Sequence[GlueText], y: Any = None) -> TfidfOfTexts:
        """Learn words and their weights; ConfigError where no text has any."""
        found = [text for column in columns(texts) for text in column]
        if not any(re.search(WORD, text) for text in found):
            raise ConfigError(
                f"TF-IDF needs words to learn. Received: {len(found)} blank texts in what it is fitted on, which is "
                "train or a part of it. Look at the columns of the data, or train on more rows."
            )
        self.vectorizer_ = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=WORD).fit(found)
        return self

    def transform(self, texts: Sequence[GlueText]) -> scipy.sparse.csr_matrix:
        """[texts, words], or of pairs [pairs, 4 words]."""
        return joined([self.vectorizer_.transform(column) for column in columns(texts)])


def columns(texts: Sequence[GlueText]) -> list[list[str]]:
    """[texts], or of pairs [first ones, second ones]."""
    return list(map(list, zip(*texts))) if isinstance(texts[0], tuple) else [list(texts)]


def joined(parts: Sequence[Any]) -> Any:
    """[u, v, |u - v|, u * v] of the features of the two texts of a pair, [rows, n] each; of single texts theirs."""
    if len(parts) == 1:
        return parts[0]
    u, v = parts
    if scipy.sparse.issparse(u):
        return scipy.sparse.hstack([u, v, abs(u - v), u.multiply(v)], format="csr")
    return np.concatenate([u, v, abs(u - v), u * v], axis=1)


class Inputs:
    """What the linear models read of each split, and the models to choose from.

    Args:
        features: "tfidf", a checkpoint's name or its folder.

    Attributes:
        rows: of each split by name: texts as they are, or numbers [rows, features].
        minutes: what it took to read them.
        model, grid: a pipeline, and its parameter's values with the strongest penalty first.
    """

    def __init__(self, features: str, data: Data) -> None:
        start, splits = time.monotonic(), (data.train, *data.dev, *data.tests)
        if features == TFIDF:
            self.rows: dict[str, Any] = {split.name: split.texts for split in splits}
            first, scale = TfidfOfTexts(), C_OF_TFIDF
        else:
            extractor = lbzoo.FeatureExtractor(features)
            # a ridge solves normal equations, which lose twice the digits
            dtype = np.float64 if data.task.regression else np.float32
            self.rows = {
                split.name: joined([extractor.transform(column) for column in columns(split.texts)]).astype(dtype)
                for split in splits
            }
            first, scale = StandardScaler(), C_OF_FEATURES
        self.minutes = (time.monotonic() - start) / 60
        ridge = data.task.regression
        last = Ridge() if ridge else LogisticRegression(max_iter=MAX_ITER)
        self.model = Pipeline([("features", first), ("linear", last)])
        self.grid = {"linear__alpha": [1 / C for C in scale]} if ridge else {"linear__C": list(scale)}


def fitted(inputs: Inputs, train: Split, seed: int) -> tuple[Pipeline, float]:
    """(The model, its penalty as C); folds by the seed, the strongest penalty where several are equally good."""
    task, rows = train.task, inputs.rows[train.name]
    kind = KFold if task.regression else StratifiedKFold
    folds = kind(_folds(train), shuffle=True, random_state=seed)
    search = GridSearchCV(inputs.model, inputs.grid, scoring=_merit(task), cv=folds, refit=False, error_score="raise")
    with warnings.catch_warnings():  # only the kept fit may complain
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(rows, train.labels)
    best = search.best_params_
    value = next(iter(best.values()))
    return clone(inputs.model).set_params(**best).fit(rows, train.labels), 1 / value if task.regression else value


def _merit(task: Task) -> Any:
    """scikit-learn's scorer: the mean of the task's metrics, 0 where one has no value."""
    return lambda model, rows, labels: score(task, model.predict(rows).tolist(), labels).mean or 0.0


def _folds(train: Split) -> int:
    """As many as there are rows of the rarest label, at most `FOLDS`."""
    rarest = len(train.labels) if train.task.regression else min(Counter(train.labels).values())
    if rarest < 2:
        raise ConfigError(
            f"cross-validation needs two rows of each label. Received: {len(train.labels)} rows, {rarest} of the "
            "rarest label. Train on more rows."
        )
    return min(FOLDS, rarest)


def run(inputs: Inputs, data: Data, seed: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """(The run as `results.json` has it, the answers to the test splits)."""
    start = time.monotonic()
    model, C = fitted(inputs, data.train, seed)
    answers = {split.name: model.predict(inputs.rows[split.name]).tolist() for split in (*data.dev, *data.tests)}
    splits = {}
    for split in data.dev:
        found = score(split.task, answers[split.name], split.labels)
        splits[split.name] = {"values": dict(found.values), "undefined": dict(found.undefined)}
    minutes = round(inputs.minutes + (time.monotonic() - start) / 60, 3)
    told = {"seed": seed, "C": C, "splits": splits, "minutes": minutes}
    return told, {split.name: answers[split.name] for split in data.tests}


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, help="tfidf, or name or folder of a checkpoint")
    glue_output.add_data_options(parser, "folder of the results")
    parser.add_argument("--seeds", type=int, default=5, help="of the folds of cross-validation (default: 5)")
    return parser


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """All seeds; the results, which are written into --output."""
    task = find_task(given.task)
    glue_output.check_counts(given)
    data = read_data(task, given.data, given.rows, not given.no_submission)
    for note in data.notes:
        glue_output.tell(f"note: {note}")
    _folds(data.train)  # raises before features are read
    frozen = given.features != TFIDF
    fixed = {
        "model": glue_output.model_name(given.features) if frozen else None,
        "system": "frozen" if frozen else TFIDF,
        "task": task.name,
        "data": data.digest(),
    }
    _claim(given.output, fixed)
    inputs, runs, answers = Inputs(given.features, data), [], {}
    for seed in range(1, given.seeds + 1):
        told, answers[seed] = run(inputs, data, seed)
        runs.append(told)
        glue_output.tell(f"{task.name} seed {seed}: C {told['C']:g}, {glue_output.told(told)}")
    results = {
        **fixed,
        "early_stopping": False,
        **glue_output.figures(data, runs),
        "command": glue_output.command("glue_linear", given, options()),
        "learning_rates": [],
        "learning_rate": None,
        "other_rates": [],
    }
    best = glue_summary.best_run(task, runs)
    for split in data.tests:
        write_submission(split.task, split, answers[best["seed"]][split.name], given.output)
    glue_output.write(given.output, results)
    return results


def _claim(folder: Path, fixed: dict[str, Any]) -> None:
    """Make the folder of the results; ConfigError for one of fine-tuning, whose results have the same names, and for
    one with the results of something else."""
    if (folder / CONFIG).exists():
        raise ConfigError(f"{str(folder)!r} has the runs of training.finetune_glue. Give --output another folder.")
    glue_output.require_same(folder, glue_output.RESULTS, fixed, "seeds alone may be added")
    folder.mkdir(parents=True, exist_ok=True)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where data, checkpoint or options cannot be used."""
    given = options().parse_args(arguments)
    return ended("glue_linear", lambda: glue_output.show(measure(given)))


if __name__ == "__main__":
    sys.exit(main())
