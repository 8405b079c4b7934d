"""Labels: any list of str, int, bool or whole floats in, the same names as Python scalars out; or numbers, of a
regression."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Union

import numpy as np

from lbzoo.errors import ConfigError, TextError
from lbzoo.text.pairs import Input, as_inputs

Label = Union[str, int, bool, float]
NEGATIVE, POSITIVE = "negative", "positive"  # of sentiment


def label_list(labels: Iterable[Any], what: str = "labels") -> list[Label]:
    """Labels as Python scalars of one type.

    Args:
        labels: a list, array, Series or iterator of str, int, bool, whole floats, or NumPy scalars of these.
        what: what to call them in an error.

    Raises:
        TextError: a bare string, a missing label, a label of another type, or more than one type among them.
        ConfigError: no labels at all.
    """
    names = [_scalar(label, position, what) for position, label in enumerate(_listed(labels, what))]
    kinds = {type(name) for name in names}
    if len(kinds) > 1:
        first = {kind: next(name for name in names if type(name) is kind) for kind in kinds}
        shown = ", ".join(sorted(f"{kind.__name__} {name!r}" for kind, name in first.items()))
        raise TextError(f"{what} must all be of one type. Received: {shown}.")
    return names


def number_list(labels: Iterable[Any], what: str = "labels") -> list[float]:
    """Labels of a regression as Python floats.

    Args:
        labels: a list, array, Series or iterator of finite numbers.
        what: what to call them in an error.

    Raises:
        TextError: not a list, or a label that is no finite number; names its position.
        ConfigError: no labels at all.
    """
    numbers = _listed(labels, what)
    for position, label in enumerate(numbers):
        label = label.item() if isinstance(label, np.generic) else label
        if isinstance(label, bool) or not isinstance(label, (int, float)) or not math.isfinite(label):
            missing = label is None or label != label or type(label).__name__ in ("NAType", "NaTType")
            advice = "Drop the rows without a label." if missing else "A regression needs finite numbers."
            raise TextError(
                f"{what}: number {position} is no number to learn. Received: {type(label).__name__} {label!r}. {advice}"
            )
        numbers[position] = float(label)
    return numbers


def texts_and_labels(
    texts: Iterable[Any],
    labels: Iterable[Any],
    what: str = "",
    read_labels: Callable[[Iterable[Any], str], list[Any]] = label_list,
) -> tuple[list[Input], list[Any]]:
    """Texts, or pairs, and labels as lists of equal length; `what` stands before the two words in an error.

    Raises:
        TextError: something that is no text or no label.
        ConfigError: no labels, or another number of them than of texts.
    """
    found, names = list(as_inputs(texts)), read_labels(labels, f"{what}labels")
    if len(found) != len(names):
        raise ConfigError(
            f"{what}texts and {what}labels differ in length. Received: {len(found)} texts, {len(names)} labels."
        )
    return found, names


def encode_labels(names: Sequence[Label], classes: Sequence[Label] | None = None) -> tuple[list[Label], np.ndarray]:
    """(classes, positions int64 [rows]): sorted classes of the names, or the given ones.

    Raises:
        ConfigError: a name that is not among the given classes.
    """
    classes = sorted(set(names)) if classes is None else list(classes)
    place = {name: position for position, name in enumerate(classes)}
    strangers = [name for name in set(names) if name not in place or type(name) is not type(classes[0])]
    if strangers:
        shown = ", ".join(sorted(map(repr, strangers))[:5])
        raise ConfigError(f"labels that are not among the classes {classes[:10]!r}. Received: {shown}.")
    return classes, np.fromiter((place[name] for name in names), np.int64, len(names))


def as_label_array(classes: Sequence[Label]) -> np.ndarray:
    """Labels as a NumPy array whose `tolist()` gives them back unchanged (of objects where no plain dtype can)."""
    array = np.array(classes)
    if array.ndim == 1 and [(type(a), a) for a in array.tolist()] == [(type(b), b) for b in classes]:
        return array
    array = np.empty(len(classes), object)
    array[:] = classes
    return array


def _listed(labels: Iterable[Any], what: str) -> list[Any]:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        raise TextError(f"{what} must be a list with one label for each text. Received: {labels!r}.")
    if getattr(labels, "ndim", 1) != 1:
        raise TextError(f"{what} must have one dimension. Received: shape {list(labels.shape)}.")
    plain = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if not plain:
        raise ConfigError(f"there are no {what}; at least one is needed.")
    return plain


def _scalar(label: Any, position: int, what: str) -> Label:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, bool):
        return label
    if isinstance(label, str):
        return str.__str__(label)
    if isinstance(label, int):
        return int(label)
    if isinstance(label, float) and label.is_integer():
        return float(label)
    missing = label is None or label != label or type(label).__name__ in ("NAType", "NaTType")
    advice = "Drop the rows without a label." if missing else "A label names a class: str, int, bool or a whole float."
    raise TextError(f"{what}: number {position} is no label. Received: {type(label).__name__} {label!r}. {advice}")
