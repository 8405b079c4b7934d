"""What is trained on, checked: texts or pairs with a label and a weight each, as given and as a model reads them.

Of weights only the ratios matter: a row of weight 2 counts twice as much as one of weight 1, one of 0 not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

import numpy as np

from lbzoo.errors import ConfigError, TextError
from lbzoo.text.pairs import Input, TextPair
from lbzoo.transfer.encoders import Encoder
from lbzoo.transfer.labels import Label, encode_labels, label_list, row_weights, scaled, texts_and_labels


@dataclasses.dataclass(frozen=True)
class Examples:
    """Rows as a model reads them.

    Attributes:
        rows: encoded texts or pairs.
        targets: positions of their classes, int64 [rows], or numbers, float32 [rows].
        weights: float32 [rows], of mean 1.
        cut: how many of the texts or pairs were longer than the model reads.
    """

    rows: Sequence[Sequence]
    targets: np.ndarray
    weights: np.ndarray
    cut: int = 0


@dataclasses.dataclass(frozen=True)
class LabelledTexts:
    """Texts, or pairs, their labels (numbers, of a regression), and their weights above 0, float64 [texts]."""

    texts: list[Input]
    labels: list[Label]
    weights: np.ndarray

    @property
    def pairs(self) -> bool:
        """Whether these are pairs."""
        return isinstance(self.texts[0], TextPair)

    def take(self, index: Iterable[int]) -> LabelledTexts:
        """These rows."""
        index = list(index)
        return LabelledTexts([self.texts[i] for i in index], [self.labels[i] for i in index], self.weights[index])

    def encoded(self, encoder: Encoder, targets: np.ndarray, factors: Any = 1.0) -> Examples:
        """As a model reads them.

        Args:
            targets: of the labels, see `Examples`.
            factors: of the weights: float64 [texts], or one for all.
        """
        rows, cut = encoder.encode(self.texts)
        weights = scaled(scaled(self.weights) * factors)
        return Examples(rows, targets, (weights / weights.mean()).astype(np.float32), cut)


def labelled_texts(
    texts: Iterable[Any],
    labels: Iterable[Any],
    sample_weight: Any = None,
    read_labels: Callable[[Iterable[Any], str], list[Any]] = label_list,
    what: str = "",
) -> LabelledTexts:
    """Check what `fit` was given; rows of weight 0 are left out.

    Args:
        read_labels: (labels, what to call them) -> a list of these, checked: `label_list` or `number_list`.
        what: stands before the words in an error: "validation ".

    Raises:
        TextError: something that is no text or no label; names its position.
        ConfigError: lengths that differ, no rows, weights that are no finite numbers >= 0, or all 0.
    """
    texts, labels = texts_and_labels(texts, labels, what, read_labels)
    weights = row_weights(sample_weight, len(texts), what)
    return LabelledTexts(texts, labels, weights).take(np.flatnonzero(weights))


def validation_texts(
    data: Any, read_labels: Callable[[Iterable[Any], str], list[Any]] = label_list, pairs: bool | None = None
) -> LabelledTexts:
    """`validation_data` of `fit`: (texts, labels) or (texts, labels, weights), of pairs where those of `fit` are."""
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        size = f" of {len(data)}" if hasattr(data, "__len__") else ""
        raise ConfigError(
            f"validation_data is (texts, labels) or (texts, labels, weights). Received: {type(data).__name__}{size}."
        )
    found = labelled_texts(*data, *[None] * (3 - len(data)), read_labels, "validation ")
    if pairs is not None and found.pairs != pairs:
        kinds = {True: "pairs", False: "single texts"}
        raise TextError(f"validation_data must hold {kinds[pairs]}, as X does. Received: {kinds[not pairs]}.")
    return found


def class_weights(class_weight: Any, classes: Sequence[Label], given: LabelledTexts) -> np.ndarray:
    """A factor for each class, float64 [classes].

    Args:
        class_weight: {label: number > 0}, where a class that is not named counts 1; "balanced", inverse to the weight
            that the class has in `given`; or None.

    Raises:
        ConfigError: anything else, or a label that is not among the classes.
    """
    found = np.ones(len(classes))
    if class_weight is None:
        return found
    if isinstance(class_weight, str) and class_weight == "balanced":
        weights = scaled(given.weights)
        held = np.bincount(encode_labels(given.labels, classes)[1], weights, len(classes))
        return weights.sum() / (len(classes) * held)
    if not isinstance(class_weight, Mapping):
        raise ConfigError(f"class_weight must be a dict, 'balanced' or None. Received: {class_weight!r}.")
    if class_weight:
        names = label_list(class_weight, "class_weight")  # NumPy's are labels, too
        places = encode_labels(names, classes, "class_weight names labels")[1]
        found[places] = [_factor(each) for each in class_weight.values()]
    return found


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
        raise ConfigError(f"class_weight must hold numbers > 0. Received: {value!r}.")
    return float(value)
