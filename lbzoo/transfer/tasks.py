"""The two tasks of `TextClassifier`: labels as what is trained on, and the fitted head as a `Probe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.transfer.examples import LabelledTexts, class_weights
from lbzoo.transfer.heads import Head
from lbzoo.transfer.labels import Label, encode_labels, label_list, number_list
from lbzoo.transfer.probe import Probe, hold_out, link_of


class Task(Protocol):
    """What `fit` asks of a task, made from what was given to it and from `class_weight`."""

    def targets(self, labels: Sequence[Any], what: str = "labels") -> tuple[np.ndarray, Any]:
        """(Targets as of `Examples`, factors of the weights as of `LabelledTexts.encoded`); errors call them `what`."""

    def split(self, labels: Sequence[Any], fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(Rows to train on, rows to hold out), ascending; the second may be empty."""

    def probe(self, head: Head, reads: dict[str, Any], meta: dict[str, Any]) -> Probe:
        """The head as what is kept."""


class Classify:
    """One of the labels that were given, two or more.

    Args:
        classes: the labels in another order than the sorted one.

    Raises:
        ConfigError: one class only, labels beyond `classes`, a `class_weight` that cannot be honoured.
    """

    read_labels = staticmethod(label_list)

    def __init__(self, given: LabelledTexts, class_weight: Any, classes: Optional[Sequence[Label]] = None) -> None:
        self.classes: list[Label] = encode_labels(given.labels, classes)[0]
        if len(self.classes) < 2:
            raise ConfigError(f"a classifier needs labels of two classes or more. Received: only {self.classes[0]!r}.")
        self.factors = class_weights(class_weight, self.classes, given)

    def targets(self, labels: Sequence[Label], what: str = "labels") -> tuple[np.ndarray, np.ndarray]:
        """(Positions of the classes, int64; the weights of these classes). ConfigError for a label of no class."""
        found = encode_labels(labels, self.classes, what)[1]
        return found, self.factors[found]

    def split(self, labels: Sequence[Label], fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """That fraction of each class is held out."""
        return hold_out(labels, fraction, seed)

    def probe(self, head: Head, reads: dict[str, Any], meta: dict[str, Any]) -> Probe:
        """With the classes' names."""
        return Probe(head.coef, head.intercept, self.classes, **reads, meta=meta, link=link_of(self.classes))


class Regress:
    """A number.

    Raises:
        ConfigError: class weights.
    """

    read_labels = staticmethod(number_list)

    def __init__(self, given: LabelledTexts, class_weight: Any) -> None:
        if class_weight is not None:
            raise ConfigError(f"a regression has no classes to weigh. Received: class_weight={class_weight!r}.")
        _numbers(given.labels)
        self.spread = float(np.std(given.labels))

    def targets(self, labels: Sequence[float], what: str = "labels") -> tuple[np.ndarray, float]:
        """(The numbers, float32; no factors)."""
        return _numbers(labels, what), 1.0

    def split(self, labels: Sequence[float], fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """That fraction is held out, at least one of two."""
        count = min(max(1, round(fraction * len(labels))), len(labels) - 1)
        order = np.random.default_rng(seed).permutation(len(labels))
        return np.sort(order[count:]), np.sort(order[:count])

    def probe(self, head: Head, reads: dict[str, Any], meta: dict[str, Any]) -> Probe:
        """Without classes; `label_spread`, the standard deviation of the labels, is kept beside the other figures."""
        meta = {**meta, "label_spread": self.spread}
        return Probe(head.coef, head.intercept, (), **reads, meta=meta, link=link_of(()))


def _numbers(labels: Sequence[float], what: str = "labels") -> np.ndarray:
    largest = max(labels, key=abs)
    if abs(largest) > np.finfo(np.float32).max:
        raise ConfigError(f"{what} must fit into float32. Received: {largest!r}.")
    return np.array(labels, np.float32)


TASKS = {"classify": Classify, "regress": Regress}


def task_of(name: Any) -> type[Task]:
    """The class for a name; ConfigError for an unknown one."""
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError(f"task must be one of {', '.join(TASKS)}. Received: task={name!r}.")
    return TASKS[name]
