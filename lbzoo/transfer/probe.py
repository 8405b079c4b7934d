"""A linear probe on features: OpenAI's fitting protocol, plain numbers on disk, NumPy alone to predict.

Protocol (openai/generating-reviews-discovering-sentiment, `utils.train_with_reg_cv`): logistic regression with an L1
penalty for C = 2**-8, 2**-7 ... 2**0, seed 42 + i for the i-th; C by accuracy on dev, the smallest where several tie;
refitted on train alone with seed 42 + 9. Features are not scaled. The solver, then the default, was liblinear.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.states import check_options
from lbzoo.transfer.labels import Label, as_label_array, encode_labels, label_list

LINKS = ("logistic", "softmax", "identity")
C_GRID = tuple(2.0**power for power in range(-8, 1))
SEED = 42
_BLOCK = 2048  # rows that are widened to float64 at a time


def link_of(classes: Sequence[Label]) -> str:
    """The link of a head that was trained by cross-entropy over these classes, or, without any, by squared error."""
    return "identity" if not classes else "softmax" if len(classes) > 2 else "logistic"


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier on the features of one checkpoint. Needs NumPy only.

    Attributes:
        coef: float32 [1, features] for two classes (positive values speak for `classes[1]`), else [classes, features].
        intercept: float32 [1] or [classes].
        classes: label names in order, all of one type (str, int, bool or float), as they were given to `fit_probe`.
        state, pool, tanh: which features it reads; see `FeatureExtractor`.
        C: inverse strength of the penalty, None where the weights come from elsewhere.
        meta: anything else worth keeping, as JSON values; `fit_probe` records the protocol's figures here.
        spread: standard deviation of each feature on the training data, float32 [features], or None.
        link: how the scores of three or more classes become probabilities: "logistic", each class against the rest,
            scaled to sum to 1, as `fit_probe` fits them; or "softmax". With two classes both are the logistic.
            "identity": a regression, whose one score is the answer; it has no classes, and coef is [1, features].

    Raises:
        ConfigError: shapes that do not fit, numbers that are not finite, unknown options.
    """

    coef: np.ndarray
    intercept: np.ndarray
    classes: Sequence[Label]
    state: str = "cell"
    pool: str = "last"
    tanh: bool = False
    C: float | None = None
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)
    spread: np.ndarray | None = None
    link: str = "logistic"

    def __post_init__(self) -> None:
        coef, intercept = _numbers("coef", self.coef), np.atleast_1d(_numbers("intercept", self.intercept))
        coef = coef[None] if coef.ndim == 1 else coef
        classes = self._checked_classes()
        rows = max(len(classes), 1) if len(classes) != 2 else 1
        if coef.ndim != 2 or coef.shape[0] != rows or not coef.shape[1] or intercept.shape != (rows,):
            raise ConfigError(
                f"a probe for {len(classes)} classes has coef [{rows}, features] and intercept [{rows}]. "
                f"Received: coef {list(coef.shape)}, intercept {list(intercept.shape)}."
            )
        spread = None if self.spread is None else _numbers("spread", self.spread)
        if spread is not None and (spread.shape != coef.shape[1:] or (spread < 0).any()):
            raise ConfigError(f"spread must be [{coef.shape[1]}], not negative. Received: shape {list(spread.shape)}.")
        pool = "" if self.pool is None else self.pool  # which one a model would choose is not for a file to leave open
        check_options(state=self.state, pool=pool, tanh=self.tanh)
        C = self.C
        if C is not None:
            number = not isinstance(C, bool) and isinstance(C, (int, float, np.number))
            if not number or not (np.isfinite(C) and C > 0):
                raise ConfigError(f"C must be a positive number or None. Received: {C!r}.")
            C = float(C)
        if not isinstance(self.meta, dict):
            raise ConfigError(f"meta must be a dict of JSON values. Received: {type(self.meta).__name__}.")
        tanh = bool(self.tanh)  # NumPy's is no JSON value
        settled = {"coef": coef, "intercept": intercept, "classes": classes, "C": C, "spread": spread, "tanh": tanh}
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    def _checked_classes(self) -> list[Label]:
        if self.link not in LINKS:
            raise ConfigError(f"link must be {' or '.join(LINKS)}. Received: {self.link!r}.")
        if self.link == "identity":
            if len(self.classes):
                raise ConfigError(f"a regression has no classes. Received: {list(self.classes)[:10]!r}.")
            return []
        classes = label_list(self.classes, "classes")
        if len(classes) < 2 or len(set(classes)) != len(classes):
            raise ConfigError(f"a probe needs two or more different classes. Received: {classes!r}.")
        return classes

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Probe):
            return NotImplemented
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self)]
        return all(
            np.array_equal(a, b)
            if isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
            else type(a) is type(b) and a == b
            for a, b in pairs
        ) and list(map(type, self.classes)) == list(map(type, other.classes))

    __hash__ = None

    @property
    def features(self) -> int:
        """Number of features it reads."""
        return self.coef.shape[1]

    @property
    def nonzero(self) -> int:
        """Number of weights that are not zero, over all classes."""
        return int(np.count_nonzero(self.coef))

    @property
    def dev_accuracy(self) -> dict[float, float]:
        """Accuracy on dev (0 to 1) for each C that `fit_probe` tried; empty where it did not make this probe."""
        return {float(c): float(accuracy) for c, accuracy in self.meta.get("dev_accuracy", [])}

    def decision_function(self, features: Any) -> np.ndarray:
        """Scores, float32: [rows] for two classes (above 0: `classes[1]`) and of a regression, else [rows, classes].

        Args:
            features: finite numbers [rows, features].

        Raises:
            ConfigError: another shape, or numbers that are not finite.
        """
        return self._scores(features).astype(np.float32)

    def predict_proba(self, features: Any) -> np.ndarray:
        """Probabilities in the order of `classes`, float32 [rows, classes]; each row sums to 1.

        Two classes: the logistic of the score. More: what `link` says. ConfigError of a regression, which has none.
        """
        if self.link == "identity":
            raise ConfigError("a regression answers with a number and has no probabilities. Ask for `predict`.")
        scores = self._scores(features)
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1)
        # log of the logistic, so that scores far below zero still compare instead of becoming 0 / 0
        softmax = self.link == "softmax" and len(self.classes) > 2
        logs = scores if softmax else -np.logaddexp(0, -scores)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)

    def predict(self, features: Any) -> np.ndarray:
        """Labels [rows], as they were given to `fit_probe`; of a regression numbers, float64 [rows]."""
        scores = self._scores(features)
        if self.link == "identity":
            return scores
        chosen = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return as_label_array(self.classes)[chosen]

    def score(self, features: Any, labels: Any) -> float:
        """Accuracy (0 to 1) on features [rows, features] with labels [rows]."""
        features, names = as_features(features), label_list(labels)
        same_length(features, names, "features", "labels")
        return float(np.mean([a == b for a, b in zip(self.predict(features).tolist(), names)]))

    def most_useful_units(self, n: int = 10, features: Any = None) -> list[tuple[int, float]]:
        """The units that move the decision most: |weight| x spread, largest first.

        Args:
            n: how many at most; units of weight zero are left out.
            features: data [rows, features] to take the spread on; by default that of the training data, and where
                that is not known, 1.

        Returns:
            [(unit, usefulness)]. For two classes usefulness has the weight's sign: positive speaks for `classes[1]`.
        """
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ConfigError(f"n must be a positive integer. Received: {n!r}.")
        spread = self.spread if features is None else as_features(features, self.features).std(axis=0)
        useful = self.coef * (1 if spread is None else spread)
        values = useful[0] if len(useful) == 1 else np.abs(useful).max(axis=0)
        order = np.argsort(-np.abs(values), kind="stable")[:n]
        return [(int(unit), float(values[unit])) for unit in order if values[unit]]

    def save(self, folder: str | os.PathLike) -> Path:
        """Write `probe.json` and `probe.safetensors` into a folder (made if it is not there); returns the folder."""
        from lbzoo.transfer.probe_file import save

        return save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> Probe:
        """Read what `save` wrote. CheckpointError: a file missing, or with anything in it that does not fit."""
        from lbzoo.transfer.probe_file import load

        return load(folder)

    def _scores(self, features: Any) -> np.ndarray:
        features = as_features(features, self.features)
        weights = self.coef.T.astype(np.float64)
        scores = np.empty((len(features), len(self.coef)))
        for at in range(0, len(features), _BLOCK):
            scores[at : at + _BLOCK] = features[at : at + _BLOCK].astype(np.float64) @ weights
        scores += self.intercept
        return scores[:, 0] if len(self.coef) == 1 else scores


def fit_probe(
    train_features: Any,
    train_labels: Any,
    dev_features: Any,
    dev_labels: Any,
    *,
    state: str = "cell",
    pool: str = "last",
    tanh: bool = False,
    C: Iterable[float] = C_GRID,
    seed: int = SEED,
    max_iter: int = 100,
    refit: str = "train",
    meta: dict[str, Any] | None = None,
) -> Probe:
    """Fit a probe by OpenAI's protocol (see the head of this file).

    Args:
        train_features, dev_features: finite numbers [rows, features].
        train_labels, dev_labels: one label each: all str, all int, all bool, or all whole floats.
        state, pool, tanh: where the features come from; recorded in the probe.
        C: the values to try, smallest first.
        seed: of the protocol; the i-th C uses seed + i, the last fit seed + len(C).
        max_iter: liblinear's limit of iterations.
        refit: "train" as published, or "all" to fit the final weights on train and dev together.
        meta: more to record in the probe.

    Returns:
        The Probe; `probe.C`, `probe.nonzero` and `probe.dev_accuracy` are the protocol's figures.

    Raises:
        ConfigError: no rows, lengths that differ, numbers that are not finite, one class only, dev labels that train
            does not have.
        TextError: labels of a kind that is not supported, or of several kinds.
    """
    train_features = as_features(train_features, what="train features")
    dev_features = as_features(dev_features, train_features.shape[1], what="dev features")
    names, dev_names = label_list(train_labels, "train labels"), label_list(dev_labels, "dev labels")
    same_length(train_features, names, "train features", "train labels")
    same_length(dev_features, dev_names, "dev features", "dev labels")
    grid = [float(value) for value in C]
    if not grid or any(value <= 0 for value in grid):
        raise ConfigError(f"C must be one or more positive numbers. Received: {grid!r}.")
    if refit not in ("train", "all"):
        raise ConfigError(f"refit must be 'train' or 'all'. Received: {refit!r}.")
    classes, targets = encode_labels(names)
    if len(classes) < 2:
        raise ConfigError(f"a probe needs training labels of two or more classes. Received: only {classes[0]!r}.")
    _, dev_targets = encode_labels(dev_names, classes)

    from sklearn.exceptions import ConvergenceWarning

    accuracies = []
    with warnings.catch_warnings():  # the published protocol stops at 100 iterations; only the kept fit may complain
        warnings.simplefilter("ignore", ConvergenceWarning)
        for i, value in enumerate(grid):
            model = _estimator(value, seed + i, max_iter, len(classes)).fit(train_features, targets)
            accuracies.append(float(model.score(dev_features, dev_targets)))
    best = grid[int(np.argmax(accuracies))]
    if refit == "all":
        train_features = np.concatenate([train_features, dev_features])
        targets = np.concatenate([targets, dev_targets])
    model = _estimator(best, seed + len(grid), max_iter, len(classes)).fit(train_features, targets)
    parts = [model] if len(classes) == 2 else model.estimators_
    figures = {
        "protocol": "L1 logistic regression, liblinear, C by dev accuracy",
        "dev_accuracy": [[value, accuracy] for value, accuracy in zip(grid, accuracies)],
        "train_rows": len(names),
        "dev_rows": len(dev_names),
        "refit": refit,
        "seed": int(seed),
    }
    return Probe(
        coef=np.concatenate([part.coef_ for part in parts]),
        intercept=np.concatenate([part.intercept_ for part in parts]),
        classes=classes,
        state=state,
        pool=pool,
        tanh=tanh,
        C=best,
        meta={**figures, **(meta or {})},
        spread=_spread(train_features),
    )


def hold_out(labels: Any, fraction: float = 0.1, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to hold out: that fraction of each class (at least one row of a class with two).

    Returns:
        (kept, held): row numbers, ascending; a pure function of labels, fraction and seed.
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"the fraction to hold out must lie between 0 and 1. Received: {fraction!r}.")
    _, targets = encode_labels(label_list(labels))
    rng, held = np.random.default_rng(seed), np.zeros(len(targets), bool)
    for target in range(int(targets.max()) + 1):
        rows = np.flatnonzero(targets == target)
        count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
        held[rng.permutation(rows)[:count]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def as_features(features: Any, width: int | None = None, what: str = "features") -> np.ndarray:
    """Finite numbers [rows, width], at least one row; float32 and float64 stay as they are, others become float32."""
    array = np.asarray(features)
    if array.dtype.kind not in "fiub" or array.ndim != 2 or not array.shape[1] or width not in (None, array.shape[1]):
        raise ConfigError(
            f"{what} must be numbers of shape [rows, {width or 'features'}]. "
            f"Received: shape {list(array.shape)}, dtype {array.dtype}."
        )
    if not len(array):
        raise ConfigError(f"{what} have no rows; at least one is needed.")
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise ConfigError(
            f"{what} must be finite. Received: NaN or infinity in {int((~finite).sum())} rows, first in {row}."
        )
    return array


def _estimator(C: float, seed: int, max_iter: int, classes: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    # scikit-learn 1.8 renamed penalty="l1" to l1_ratio=1; same liblinear call, same coefficients
    old = inspect.signature(LogisticRegression).parameters.get("penalty")
    l1 = {"penalty": "l1"} if old is not None and old.default == "l2" else {"l1_ratio": 1}
    model = LogisticRegression(C=C, solver="liblinear", random_state=seed, max_iter=max_iter, **l1)
    if classes == 2:
        return model
    from sklearn.multiclass import OneVsRestClassifier  # liblinear itself refuses three classes since 1.8

    return OneVsRestClassifier(model)


def _spread(features: np.ndarray) -> np.ndarray:
    columns = range(0, features.shape[1], 256)  # a few at a time: std makes a float64 copy
    return np.concatenate([features[:, at : at + 256].std(axis=0, dtype=np.float64) for at in columns])


def _numbers(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ConfigError(f"{name} must be an array of numbers. Received: dtype {array.dtype}.")
    array = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(array).all():
        raise ConfigError(f"{name} must be finite. Received: NaN or infinity in it.")
    return array


def same_length(first: Any, second: Any, first_name: str, second_name: str) -> None:
    """ConfigError, in these names, where two lists are not equally long."""
    if len(first) != len(second):
        raise ConfigError(f"{first_name} and {second_name} differ in length. Received: {len(first)} and {len(second)}.")
