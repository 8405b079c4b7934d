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
        raise TextError(f"{what} must all be of one type. Received: {shown}. Turn all of them into one, such as str.")
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
            advice = "Drop the rows without a label." if _missing(label) else "A regression needs finite numbers."
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


def row_weights(weights: Any, rows: int, what: str = "") -> np.ndarray:
    """Weights, one for each row, float64 [rows], of which the ratios matter; `what` stands before the word in an error.

    None: all are 1.

    Raises:
        ConfigError: not one number for each row; not finite, negative, or all 0.
    """
    if weights is None:
        return np.ones(rows)
    try:
        found = np.asarray(weights)
    except ValueError:  # lists of different lengths
        found = np.empty(0, object)
    if found.shape != (rows,) or found.dtype.kind not in "fiub":
        raise ConfigError(
            f"{what}weights must be one number for each text. Received: shape {list(found.shape)}, dtype "
            f"{found.dtype}, for {rows} texts."
        )
    found = found.astype(np.float64)
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        shown = ", ".join(f"{weight:g}" for weight in found[:8]) + (", ..." if rows > 8 else "")
        raise ConfigError(f"{what}weights must be finite, not negative and not all 0. Received: {shown}.")
    return found


def scaled(weights: np.ndarray) -> np.ndarray:
    """Weights, float64, divided by a power of two, so that the largest is about 1 and sums of them stay finite."""
    return np.ldexp(weights, -np.frexp(weights.max())[1])


def encode_labels(
    names: Sequence[Label], classes: Sequence[Label] | None = None, what: str = "labels"
) -> tuple[list[Label], np.ndarray]:
    """(classes, positions int64 [rows]): sorted classes of the names, or the given ones.

    Args:
        what: what to call the names in an error.

    Raises:
        ConfigError: a name that is not among the given classes.
    """
    classes = sorted(set(names)) if classes is None else list(classes)
    place = {name: position for position, name in enumerate(classes)}
    strangers = [name for name in set(names) if name not in place or type(name) is not type(classes[0])]
    if strangers:
        shown = ", ".join(sorted(map(repr, strangers))[:5])
        raise ConfigError(f"{what} that are not among the classes {classes[:10]!r}. Received: {shown}.")
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
    advice = "A label names a class: str, int, bool or a whole float."
    advice = "Drop the rows without a label." if _missing(label) else advice
    raise TextError(f"{what}: number {position} is no label. Received: {type(label).__name__} {label!r}. {advice}")


def _missing(label: Any) -> bool:
    if label is None or type(label).__name__ in ("NAType", "NaTType"):  # pandas.NA cannot be compared
        return True
    return isinstance(label, float) and math.isnan(label)
