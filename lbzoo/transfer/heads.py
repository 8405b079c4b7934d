"""The linear head of fine-tuning: of classes, by cross-entropy, or of a number, by squared error.

`head_for` chooses by the targets of the examples: whole numbers are positions of classes, floats are numbers.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Union

import numpy as np
import tensorflow as tf

from lbzoo.transfer.answers import squared_error_and_r2
from lbzoo.transfer.examples import Examples

HEAD_C = (0.01, 0.1, 1.0)  # inverse penalties that held-out data choose from; without such data the middle one


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Weighted over held-out texts: the loss that is trained on, and what counts, of which more is better."""

    loss: float
    score: float

    def better_than(self, other: Judgement) -> bool:
        """By score, and where that ties by loss."""
        return (self.score, -self.loss) > (other.score, -other.loss)


@dataclasses.dataclass
class ClassHead:
    """Weights of a linear classifier: coef [outputs, width] and intercept [outputs], one output for two classes.

    Its loss is the log loss in nats, its score the accuracy.
    """

    coef: np.ndarray
    intercept: np.ndarray
    measure = "accuracy"

    @classmethod
    def fitted(cls, features: np.ndarray, examples: Examples, C: float) -> ClassHead:
        """L2 logistic regression, softmax for three classes and more."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # where it stands then is a good start all the same
            model = LogisticRegression(C=C, max_iter=1000).fit(features, examples.targets, examples.weights)
        return cls(model.coef_.astype(np.float32), model.intercept_.astype(np.float32))

    def judge(self, features: np.ndarray, examples: Examples) -> Judgement:
        """Of these features of the examples."""
        scores = features.astype(np.float64) @ self.coef.T + self.intercept
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1) if scores.shape[1] == 1 else scores
        top = scores.max(axis=1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
        share = _shares(examples)
        loss = -(share * np.take_along_axis(logs, examples.targets[:, None], axis=1)[:, 0]).sum()
        accuracy = float((share * (scores.argmax(axis=1) == examples.targets)).sum())
        return Judgement(float(loss), round(accuracy, 12))  # so that equal ones are, in whatever order they add up

    @staticmethod
    def losses(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Cross-entropy of each row: scores float32 [rows, outputs], targets int64 [rows] -> float32 [rows]."""
        if scores.shape[1] == 1:
            return tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(targets, tf.float32), scores[:, 0])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores)


@dataclasses.dataclass
class NumberHead:
    """Weights of a linear regression: coef [1, width] and intercept [1]. Its loss is the mean squared error, its score
    R^2."""

    coef: np.ndarray
    intercept: np.ndarray
    measure = "r2"

    @classmethod
    def fitted(cls, features: np.ndarray, examples: Examples, C: float) -> NumberHead:
        """Ridge regression."""
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=1 / C).fit(
            features.astype(np.float64), examples.targets.astype(np.float64), examples.weights.astype(np.float64)
        )
        return cls(model.coef_.astype(np.float32).reshape(1, -1), np.float32(model.intercept_).reshape(1))

    def judge(self, features: np.ndarray, examples: Examples) -> Judgement:
        """Of these features of the examples."""
        found = features.astype(np.float64) @ self.coef[0] + self.intercept[0]
        loss, score = squared_error_and_r2(found, examples.targets, _shares(examples))
        return Judgement(loss, round(score, 12))

    @staticmethod
    def losses(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Squared error of each row: scores float32 [rows, 1], targets float32 [rows] -> float32 [rows]."""
        return tf.math.squared_difference(scores[:, 0], targets)


Head = Union[ClassHead, NumberHead]


def head_for(examples: Examples) -> type[Head]:
    """The class of head for targets of this kind."""
    return NumberHead if examples.targets.dtype.kind == "f" else ClassHead


@dataclasses.dataclass(frozen=True)
class Scale:
    """The unit in which numbers are trained, whatever they count: mean 0 and variance 1 on the training examples.

    Where all are equal their mean alone is taken off. Positions of classes stay as they are.
    """

    mean: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, examples: Examples) -> Scale:
        """That of these examples' targets."""
        if head_for(examples) is ClassHead:
            return cls()
        targets, shares = examples.targets.astype(np.float64), _shares(examples)
        mean = float((shares * targets).sum())
        spread = float(np.sqrt((shares * (targets - mean) ** 2).sum()))
        return cls(mean, spread if spread > 1e-6 * abs(mean) else 1.0)

    def put(self, examples: Examples) -> Examples:
        """Examples with targets in this unit."""
        if head_for(examples) is ClassHead:
            return examples
        targets = (examples.targets.astype(np.float64) - self.mean) / self.spread
        return dataclasses.replace(examples, targets=targets.astype(np.float32))

    def undo(self, head: Head) -> Head:
        """The head for the numbers as they were."""
        if isinstance(head, ClassHead):
            return head
        coef = head.coef.astype(np.float64) * self.spread
        intercept = head.intercept.astype(np.float64) * self.spread + self.mean
        return NumberHead(coef.astype(np.float32), intercept.astype(np.float32))


def _shares(examples: Examples) -> np.ndarray:
    return examples.weights.astype(np.float64) / examples.weights.sum(dtype=np.float64)
