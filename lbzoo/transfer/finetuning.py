"""Fine-tuning of any encoder with a linear head: the head first, then the body, the best weights on held-out data kept.

1. The head is fitted on the features of the frozen body (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained
   Features": a head that starts at random would spoil them).
2. Epochs of the one update follow. Gradual unfreezing (Howard & Ruder 2018, section 3.3) lets one more group of the
   body's weights train with each epoch; the Adam of an epoch that has a new group starts afresh.
3. After each epoch the held-out data decide. The weights of the best epoch, the frozen body's included, come back.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from lbzoo._keras import adam
from lbzoo.errors import ConfigError
from lbzoo.optimizers.schedules import LinearDecay, warmup_steps
from lbzoo.optimizers.update import Update
from lbzoo.states import BATCH_SIZE, check_size
from lbzoo.text.batching import shuffled_batches
from lbzoo.transfer.encoders import Encoder
from lbzoo.transfer.examples import Examples

UNFREEZE = ("gradual", "all", "head")
HEAD_C = (0.01, 0.1, 1.0)  # inverse penalties that held-out data choose from; without such data the middle one
_READ = 4096  # texts that are sorted by length together where features are read
SKIP_LIMIT = 10  # steps in a row whose gradient is not finite


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a classifier is fine-tuned; see `lbzoo.TextClassifier` for each.

    Raises:
        ConfigError: a value outside what can be honoured.
    """

    epochs: int = 4
    batch_size: int = 32
    learning_rate: float = 3e-4
    unfreeze: str = "gradual"
    patience: int = 2
    language_model_weight: float = 0.0
    dropout: float = 0.3
    warmup: float = 0.1
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            check_size(name, getattr(self, name))
        if self.unfreeze not in UNFREEZE:
            raise ConfigError(f"unfreeze must be one of {', '.join(UNFREEZE)}. Received: unfreeze={self.unfreeze!r}.")
        for name, low, high in (("learning_rate", 0, 1), ("language_model_weight", 0, 100), ("dropout", 0, 1)):
            value = getattr(self, name)
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not number or not low <= value < high or (name == "learning_rate" and not value):
                above = ">" if name == "learning_rate" else ">="
                raise ConfigError(f"{name} must be a number {above} {low} and < {high}. Received: {name}={value!r}.")


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Weighted means over held-out texts: log loss in nats and accuracy."""

    loss: float
    accuracy: float

    def better_than(self, other: Judgement) -> bool:
        """By accuracy, and where that ties by log loss."""
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)


@dataclasses.dataclass
class Head:
    """Weights of a linear classifier: coef [outputs, width] and intercept [outputs], one output for two classes."""

    coef: np.ndarray
    intercept: np.ndarray

    def judge(self, features: np.ndarray, examples: Examples) -> Judgement:
        """Of these features of the examples."""
        scores = features.astype(np.float64) @ self.coef.T + self.intercept
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1) if scores.shape[1] == 1 else scores
        top = scores.max(axis=1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True))
        share = examples.weights.astype(np.float64) / examples.weights.sum(dtype=np.float64)
        loss = -(share * np.take_along_axis(logs, examples.targets[:, None], axis=1)[:, 0]).sum()
        accuracy = float((share * (scores.argmax(axis=1) == examples.targets)).sum())
        return Judgement(float(loss), round(accuracy, 12))  # so that equal ones are, in whatever order they add up


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What came of it: the head that belongs to the encoder's weights, and the story of each epoch (0: the head)."""

    head: Head
    history: list[dict[str, Any]]
    best_epoch: int


def finetune(encoder: Encoder, train: Examples, held_out: Examples | None, settings: Settings, seed: int) -> Tuned:
    """Fit a head and the encoder's weights, in place.

    Args:
        encoder: its model is trained; afterwards it has the best epoch's weights.
        train: what is learned; at least one row of each class.
        held_out: what decides; None trains all epochs and keeps the last weights.
        seed: of the order of the texts and of dropout; everything follows from it.

    Raises:
        TrainingError: gradients that are not finite, many steps in a row.
    """
    features = _read(encoder, train)
    held_features = None if held_out is None else _read(encoder, held_out)
    head = _frozen_head(features, train, held_features, held_out)
    language_model = encoder.language_model() if settings.language_model_weight else []
    story = _Story(encoder, held_out, language_model)
    story.add("head", None, head, held_features)
    if settings.unfreeze != "head":
        _Run(encoder, head, train, language_model, settings, seed).epochs(story)
    return story.end()


def _read(encoder: Encoder, examples: Examples) -> np.ndarray:
    """Features of all rows under the present weights, float32 [rows, width]."""
    blocks = []
    with tqdm(total=len(examples.rows), unit="text", desc="reading", disable=None, leave=False) as bar:
        for start in range(0, len(examples.rows), _READ):
            blocks.append(encoder.read(examples.rows[start : start + _READ], BATCH_SIZE))
            bar.update(len(blocks[-1]))
    return np.concatenate(blocks)


def _frozen_head(
    features: np.ndarray, train: Examples, held_features: np.ndarray | None, held_out: Examples | None
) -> Head:
    """L2 logistic regression (softmax for three classes and more), its penalty by the loss on held-out data."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    best: tuple[float, Head] | None = None
    for C in HEAD_C if held_out is not None else HEAD_C[1:2]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # where it stands then is a good start all the same
            model = LogisticRegression(C=C, max_iter=1000).fit(features, train.targets, train.weights)
        head = Head(model.coef_.astype(np.float32), model.intercept_.astype(np.float32))
        loss = 0.0 if held_out is None else head.judge(held_features, held_out).loss
        if best is None or loss < best[0]:
            best = loss, head
    return best[1]


class _Story:
    """What each epoch came to, and the weights of the best one."""

    def __init__(self, encoder: Encoder, held_out: Examples | None, more: list[tf.Variable]) -> None:
        self.encoder, self.held_out = encoder, held_out
        self.variables = [*more, *(v for group in encoder.groups() for v in group)]
        self.history: list[dict[str, Any]] = []
        self.best, self.best_epoch, self.head, self.kept = None, 0, None, None

    def add(self, trained: str, loss: float | None, head: Head, features: np.ndarray | None = None) -> None:
        """Judge the present weights and keep them if they are the best so far (the latest, without held-out data)."""
        row: dict[str, Any] = {"epoch": len(self.history), "trained": trained, "loss": loss}
        if self.held_out is not None:
            features = _read(self.encoder, self.held_out) if features is None else features
            found = head.judge(features, self.held_out)
            row.update(held_out_loss=found.loss, held_out_accuracy=found.accuracy)
        if self.held_out is None or self.best is None or found.better_than(self.best):
            self.best = None if self.held_out is None else found
            self.best_epoch, self.head, self.kept = row["epoch"], head, [v.numpy() for v in self.variables]
        self.history.append(row)

    def without_gain(self) -> int:
        """Epochs since the best one."""
        return len(self.history) - 1 - self.best_epoch

    def end(self) -> Tuned:
        """Put the best weights back."""
        for variable, value in zip(self.variables, self.kept):
            variable.assign(value)
        return Tuned(self.head, self.history, self.best_epoch)


class _Run:
    """The epochs after the head."""

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        train: Examples,
        language_model: list[tf.Variable],
        settings: Settings,
        seed: int,
    ) -> None:
        self.encoder, self.train, self.settings, self.seed = encoder, train, settings, seed
        self.coef, self.intercept = tf.Variable(head.coef), tf.Variable(head.intercept)
        self.always = [self.coef, self.intercept, *language_model]
        self.steps = -(-len(train.rows) // settings.batch_size)  # of an epoch
        total = self.steps * settings.epochs
        self.rates = LinearDecay(
            settings.learning_rate, total, warmup=min(warmup_steps(settings.warmup, "share", total), total - 1)
        )

    def epochs(self, story: _Story) -> None:
        """Train until the epochs or the patience are over."""
        groups, unfrozen = self.encoder.groups(), 0
        lengths = [len(row) for row in self.train.rows]
        with tqdm(total=self.steps * self.settings.epochs, unit="step", disable=None, leave=False) as bar:
            for epoch in range(self.settings.epochs):
                now = len(groups) if self.settings.unfreeze == "all" else min(epoch + 1, len(groups))
                if now != unfrozen:
                    unfrozen = now
                    update, step = self._stage([v for group in groups[:now] for v in group], epoch * self.steps)
                rng = np.random.default_rng([self.seed, epoch])
                loss = 0.0
                for index in shuffled_batches(lengths, self.settings.batch_size, rng):
                    loss += float(step(*self._batch(index), rng.integers(2**31, size=2).astype(np.int32))) * len(index)
                    update.check(SKIP_LIMIT)
                    bar.update()
                head = Head(self.coef.numpy(), self.intercept.numpy())
                story.add(f"head and {now} of {len(groups)} groups", loss / len(lengths), head)
                bar.set_postfix({k: f"{v:.4g}" for k, v in story.history[-1].items() if isinstance(v, float)})
                if story.held_out is not None and story.without_gain() >= self.settings.patience:
                    break

    def _batch(self, index: np.ndarray) -> tuple[Any, ...]:
        batch = self.encoder.batch([self.train.rows[i] for i in index])
        return (*batch, self.train.targets[index], self.train.weights[index])

    def _stage(self, body: list[tf.Variable], done: int) -> tuple[Update, Callable[..., tf.Tensor]]:
        """The update of head and `body`, whose step 0 is step `done` of the schedule; compiled once."""
        variables = [*self.always, *body]
        update = Update(variables, adam(self.rates.peak), lambda step: self.rates(step + done), self.settings.clip_norm)
        signature = [
            *self.encoder.signature,
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([2], tf.int32),
        ]

        @tf.function(input_signature=signature)
        def step(*inputs):
            *batch, targets, weights, seed = inputs

            def loss_function(*inputs):
                *batch, targets, weights = inputs
                features, language_loss = self.encoder.forward(*batch, seed=seed)
                loss = tf.reduce_mean(weights * self._losses(features, targets, seed))
                if self.settings.language_model_weight:
                    loss += self.settings.language_model_weight * language_loss
                return loss, None

            return update(loss_function, *batch, targets, weights)[0]

        return update, step

    def _losses(self, features: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Cross-entropy of each row, float32 [rows]."""
        if self.settings.dropout:
            features = tf.nn.experimental.stateless_dropout(features, self.settings.dropout, seed)
        scores = tf.matmul(features, self.coef, transpose_b=True) + self.intercept
        if scores.shape[1] == 1:
            return tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(targets, tf.float32), scores[:, 0])
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores)
