"""Answers about texts by a linear classifier on features of a model: one text or a stream of them.

Knows no scikit-learn, whose import takes half a second, and no architecture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.text.pairs import Input, as_inputs
from lbzoo.transfer.labels import Label, as_label_array, number_list, row_weights, scaled, texts_and_labels
from lbzoo.transfer.probe import Probe


class Prediction(NamedTuple):
    """One answer of `iter_predict`: the label, its probability, and all probabilities in the order of `classes_`; of a
    regression the number, None and None."""

    label: Label
    probability: float | None
    probabilities: np.ndarray | None


class LinearAnswers:
    """predict and its kin, for a class that says by which probe it decides and reads the features of texts.

    Texts are anything `lbzoo.text.pairs.as_inputs` takes: single ones, or pairs.
    """

    def predict(self, texts: Iterable[Any]) -> np.ndarray:
        """Labels [texts]; of a regression numbers, float64 [texts]."""
        probe = self._decider()
        blocks = [probe.predict(block) for block in self._iter_features(texts, probe)]
        if blocks:
            return np.concatenate(blocks)
        return np.zeros(0) if probe.link == "identity" else as_label_array(probe.classes)[:0]

    def predict_proba(self, texts: Iterable[Any]) -> np.ndarray:
        """Probabilities, float32 [texts, classes], in the order of `classes_`; each row sums to 1.

        Raises:
            ConfigError: a regression, which has none.
        """
        probe = self._decider()
        blocks = [probe.predict_proba(block) for block in self._iter_features(texts, probe)]
        return np.concatenate(blocks) if blocks else np.zeros((0, len(probe.classes)), np.float32)

    def decision_function(self, texts: Iterable[Any]) -> np.ndarray:
        """Scores, float32: [texts] for two classes (above 0: `classes_[1]`) or a regression, else [texts, classes]."""
        probe = self._decider()
        blocks = [probe.decision_function(block) for block in self._iter_features(texts, probe)]
        shape = (0,) if len(probe.coef) == 1 else (0, len(probe.classes))
        return np.concatenate(blocks) if blocks else np.zeros(shape, np.float32)

    def iter_predict(self, texts: Iterable[Any], window: int | None = None) -> Iterator[Prediction]:
        """Answers for a stream of texts, in order, in memory that does not grow with their number.

        Args:
            texts: any iterable; it is read a window ahead of the answers.
            window: most texts that are read and sorted together; None chooses by the width of the model.
        """
        probe = self._decider()
        blocks = self._iter_features(texts, probe, window)
        if probe.link == "identity":
            return (Prediction(number, None, None) for block in blocks for number in probe.predict(block).tolist())
        place = {label: position for position, label in enumerate(probe.classes)}
        return (
            Prediction(label, float(row[place[label]]), row)
            for block in blocks
            for label, row in zip(probe.predict(block).tolist(), probe.predict_proba(block))
        )

    def score(self, texts: Iterable[Any], labels: Iterable[Any], sample_weight: Any = None) -> float:
        """Accuracy (0 to 1), or R^2 of a regression (1 is best; numbers that are all equal give 1 or 0, never NaN).

        Raises:
            ConfigError: another number of labels than texts, none that the classifier knows, or weights that are not
                one number >= 0 for each text.
            TextError: a label that is none; a regression's must be finite numbers.
        """
        if self._decider().link == "identity":
            texts, numbers = texts_and_labels(texts, labels, read_labels=number_list)
            weights = scaled(row_weights(sample_weight, len(numbers)))
            return squared_error_and_r2(self.predict(texts), np.array(numbers), weights / weights.sum())[1]
        texts, names = texts_and_labels(texts, labels)
        if names and not set(names) & set(self.classes_.tolist()):
            raise ConfigError(
                f"the labels must be among {', '.join(map(repr, self.classes_.tolist()))}. Received: {names[0]!r} ..."
            )
        weights = scaled(row_weights(sample_weight, len(names)))
        predicted = self.predict(texts).tolist()
        return float(np.average([a == b for a, b in zip(predicted, names)], weights=weights))

    def _decider(self) -> Probe:
        """The probe in use; NotFittedError where there is none."""
        raise NotImplementedError

    def _iter_features(self, texts: Iterable[Any], probe: Probe, window: int | None = None) -> Iterator[np.ndarray]:
        """Blocks of what the probe reads, float32 [texts of the block, features], in order."""
        raise NotImplementedError


def inputs_for(texts: Iterable[Any], probe: Probe) -> Iterator[Input]:
    """Texts, or pairs, checked: of the kind that the probe was fitted on, where it is known to be of one.

    Raises:
        TextError: see `as_inputs`.
    """
    return as_inputs(texts, probe.meta.get("pairs"))


def squared_error_and_r2(found: np.ndarray, wanted: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """(Mean squared error, R^2) under weights that sum to 1; R^2 of numbers that are all equal is 1 where each is
    found, else 0, as in scikit-learn, and so it is of one number."""
    wanted = wanted.astype(np.float64)
    error = float((shares * (found - wanted) ** 2).sum())
    spread = float((shares * (wanted - (shares * wanted).sum()) ** 2).sum())
    if not spread:
        return error, float(not error)
    return error, 1 - error / spread
