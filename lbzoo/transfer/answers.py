"""Answers about texts by a linear classifier on features of a model: one text or a stream of them.

Knows no scikit-learn, whose import takes half a second, and no architecture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.transfer.labels import Label, as_label_array, texts_and_labels
from lbzoo.transfer.probe import Probe


class Prediction(NamedTuple):
    """One answer of `iter_predict`: the label, its probability, and all probabilities in the order of `classes_`."""

    label: Label
    probability: float
    probabilities: np.ndarray


class LinearAnswers:
    """predict and its kin, for a class that says by which probe it decides and reads the features of texts."""

    def predict(self, texts: Iterable[str | bytes]) -> np.ndarray:
        """Labels [texts]."""
        probe = self._decider()
        blocks = [probe.predict(block) for block in self._iter_features(texts, probe)]
        return np.concatenate(blocks) if blocks else as_label_array(probe.classes)[:0]

    def predict_proba(self, texts: Iterable[str | bytes]) -> np.ndarray:
        """Probabilities, float32 [texts, classes], in the order of `classes_`; each row sums to 1."""
        probe = self._decider()
        blocks = [probe.predict_proba(block) for block in self._iter_features(texts, probe)]
        return np.concatenate(blocks) if blocks else np.zeros((0, len(probe.classes)), np.float32)

    def decision_function(self, texts: Iterable[str | bytes]) -> np.ndarray:
        """Scores, float32: [texts] for two classes (above 0: `classes_[1]`), else [texts, classes]."""
        probe = self._decider()
        blocks = [probe.decision_function(block) for block in self._iter_features(texts, probe)]
        shape = (0,) if len(probe.classes) == 2 else (0, len(probe.classes))
        return np.concatenate(blocks) if blocks else np.zeros(shape, np.float32)

    def iter_predict(self, texts: Iterable[str | bytes], window: int | None = None) -> Iterator[Prediction]:
        """Answers for a stream of texts, in order, in memory that does not grow with their number.

        Args:
            texts: any iterable; it is read a window ahead of the answers.
            window: most texts that are read and sorted together; None chooses by the width of the model.
        """
        probe = self._decider()
        place = {label: position for position, label in enumerate(probe.classes)}
        return (
            Prediction(label, float(row[place[label]]), row)
            for block in self._iter_features(texts, probe, window)
            for label, row in zip(probe.predict(block).tolist(), probe.predict_proba(block))
        )

    def score(self, texts: Iterable[str | bytes], labels: Iterable[Any], sample_weight: Any = None) -> float:
        """Accuracy (0 to 1).

        Raises:
            ConfigError: another number of labels than texts, or none that the classifier knows.
        """
        texts, names = texts_and_labels(texts, labels)
        if names and not set(names) & set(self.classes_.tolist()):
            raise ConfigError(
                f"the labels must be among {', '.join(map(repr, self.classes_.tolist()))}. Received: {names[0]!r} ..."
            )
        predicted = self.predict(texts).tolist()
        return float(np.average([a == b for a, b in zip(predicted, names)], weights=sample_weight))

    def _decider(self) -> Probe:
        """The probe in use; NotFittedError where there is none."""
        raise NotImplementedError

    def _iter_features(
        self, texts: Iterable[str | bytes], probe: Probe, window: int | None = None
    ) -> Iterator[np.ndarray]:
        """Blocks of what the probe reads, float32 [texts of the block, features], in order."""
        raise NotImplementedError
