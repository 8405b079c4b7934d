"""A classifier that reads one unit of a model: which unit, which sign and which threshold fit some data best."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.transfer.labels import Label, as_label_array, encode_labels, label_list
from lbzoo.transfer.probe import as_features, same_length


@dataclasses.dataclass(frozen=True)
class SingleUnit:
    """A classifier of two classes that reads one feature: `classes[1]` where polarity * (value - threshold) > 0."""

    unit: int
    polarity: int
    threshold: float
    accuracy: float
    classes: tuple[Label, Label]

    def predict(self, features: Any) -> np.ndarray:
        """Labels [rows] from features [rows, features]."""
        values = as_features(features)[:, self.unit].astype(np.float64)
        return as_label_array(list(self.classes))[(self.polarity * (values - self.threshold) > 0).astype(np.intp)]

    def score(self, features: Any, labels: Any) -> float:
        """Accuracy (0 to 1)."""
        predicted, names = self.predict(features).tolist(), label_list(labels)
        same_length(predicted, names, "features", "labels")
        return float(np.mean([a == b for a, b in zip(predicted, names)]))


def best_single_unit(features: Any, labels: Any) -> SingleUnit:
    """The one feature, sign and threshold that classify the given data best; the lowest unit where several tie.

    Args:
        features: finite numbers [rows, features].
        labels: [rows], two classes.

    Raises:
        ConfigError: as for `fit_probe`, or another number of classes than two.
    """
    features, names = as_features(features), label_list(labels)
    same_length(features, names, "features", "labels")
    classes, targets = encode_labels(names)
    if len(classes) != 2:
        raise ConfigError(f"a single unit tells two classes apart. Received: {len(classes)} classes.")
    rows, positives = len(targets), int(targets.sum())
    best = (-1.0, 0, 1, 0.0)
    step = max(1, 2**22 // rows)  # columns at a time, so that the sorted copies stay small
    for first in range(0, features.shape[1], step):
        block = features[:, first : first + step]
        order = np.argsort(block, axis=0, kind="stable")
        values = np.take_along_axis(block, order, axis=0)
        below = np.zeros((rows + 1, block.shape[1]), np.int64)  # positives among the k smallest
        np.cumsum(targets[order], axis=0, out=below[1:])
        k = np.arange(rows + 1)[:, None]
        right = (k - below) + (positives - below)  # right if the k smallest are called negative
        cut = np.ones(right.shape, bool)  # a cut between equal values is none
        cut[1:-1] = values[1:] > values[:-1]
        for polarity, count in ((1, right), (-1, rows - right)):
            count = np.where(cut, count, -1)
            top = count.max(axis=0)
            column = int(top.argmax())
            accuracy = float(top[column]) / rows
            if accuracy > best[0]:
                threshold = _between(values[:, column].astype(np.float64), int(count[:, column].argmax()))
                best = (accuracy, first + column, polarity, threshold)
    accuracy, unit, polarity, threshold = best
    return SingleUnit(unit, polarity, threshold, accuracy, (classes[0], classes[1]))


def _between(values: np.ndarray, k: int) -> float:
    """A threshold with k of the ascending values below it."""
    if k == 0:
        return float(values[0] - 1 - abs(values[0]))
    return float(values[-1] + 1 + abs(values[-1])) if k == len(values) else float((values[k - 1] + values[k]) / 2)
