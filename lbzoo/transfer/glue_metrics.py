"""Answers to a GLUE task as figures: each task's own metrics by scikit-learn and scipy, labels compared by name.

A metric that a constant answer leaves without a value (Matthews, Pearson, Spearman: 0/0) is None with the reason, not
the 0 or NaN that libraries put in its place.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.transfer.glue import Task
from lbzoo.transfer.labels import encode_labels

NAMES = {
    "matthews": "Matthews correlation",
    "accuracy": "accuracy",
    "f1": "F1",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
}


@dataclasses.dataclass(frozen=True)
class Score:
    """Metrics as fractions of 1, None where a metric has no value; `undefined` says why."""

    values: Mapping[str, float | None]
    undefined: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """Of all metrics, as GLUE averages them; None where one has no value."""
        values = list(self.values.values())
        return None if None in values else float(np.mean(values))


def score(task: Task, predicted: Sequence[Any], truth: Sequence[Any]) -> Score:
    """The task's metrics.

    Args:
        predicted, truth: label names, or numbers for a regression; as many of one as of the other.

    Raises:
        ConfigError: lengths that differ, no rows, or names that are not the task's labels.
    """
    if len(predicted) != len(truth) or not len(truth):
        raise ConfigError(
            "a score needs an answer for each row, and at least one row. "
            f"Received: {len(predicted)} answers, {len(truth)} rows."
        )
    if task.regression:
        pair = np.asarray(predicted, np.float64), np.asarray(truth, np.float64)
    else:
        pair = tuple(encode_labels(list(names), task.labels)[1] for names in (predicted, truth))
    values: dict[str, float | None] = {}
    undefined = {}
    for metric in task.metrics:
        reason = _without_value(metric, *pair)
        values[metric] = None if reason else _METRICS[metric](*pair)
        if reason:
            undefined[metric] = reason
    return Score(values, undefined)


def majority_baseline(task: Task, truth: Sequence[Any]) -> Score:
    """What the commonest of these labels, given to every row, scores; for a regression their mean."""
    common = float(np.mean(truth)) if task.regression else Counter(truth).most_common(1)[0][0]
    return score(task, [common] * len(truth), truth)


def no_better(found: Score, baseline: Score) -> bool:
    """Whether no metric is above the baseline's; a metric without a value, there or here, counts as 0."""
    return all((found.values[metric] or 0.0) <= (baseline.values[metric] or 0.0) for metric in baseline.values)


def in_public_order(task: Task, scores: np.ndarray, names: Sequence[Any]) -> np.ndarray:
    """A model's scores with the columns in the order of the task's labels.

    Args:
        scores: [rows, labels], in the order of the model's own labels.
        names: the model's labels; case, spaces and hyphens do not matter.

    Raises:
        ConfigError: names that are not the task's, such as LABEL_0: which is which cannot be known then.
    """
    own = [str(name).strip().casefold().replace(" ", "_").replace("-", "_") for name in names]
    if sorted(own) != sorted(task.labels) or scores.shape[1:] != (len(own),):
        raise ConfigError(
            f"the model's labels are not those of {task.name}, {', '.join(task.labels) or 'one number'}. "
            f"Received: {list(names)} for scores of shape {list(scores.shape)}. Name them in its config.json."
        )
    return scores[:, [own.index(name) for name in task.labels]]


def _without_value(metric: str, predicted: np.ndarray, truth: np.ndarray) -> str | None:
    """Why the metric has no value, or None where it has one."""
    if not np.isfinite(predicted).all():
        return "answers that are not finite"
    if metric == "f1" and not predicted.any() and not truth.any():
        return "no row is, or is answered, positive"
    if metric in ("matthews", "pearson", "spearman"):
        for what, values in (("answer", predicted), ("label", truth)):
            if (values == values[0]).all():
                return f"every row has the same {what}"
    return None


def _matthews(predicted: np.ndarray, truth: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(truth, predicted))


def _accuracy(predicted: np.ndarray, truth: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(truth, predicted))


def _f1(predicted: np.ndarray, truth: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, predicted, pos_label=1))


def _pearson(predicted: np.ndarray, truth: np.ndarray) -> float:
    from scipy.stats import pearsonr

    return float(pearsonr(truth, predicted)[0])


def _spearman(predicted: np.ndarray, truth: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(truth, predicted)[0])


_METRICS = {
    "matthews": _matthews,
    "accuracy": _accuracy,
    "f1": _f1,
    "pearson": _pearson,
    "spearman": _spearman,
}
