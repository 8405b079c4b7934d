"""Fine-tuning of any encoder with a linear head: the head first, then the body, the best weights on held-out data kept.

1. The head is fitted on the features of the frozen body (Kumar et al. 2022, "Fine-Tuning can Distort Pretrained
   Features": a head that starts at random would spoil them).
2. Epochs of the one update follow. Gradual unfreezing (Howard & Ruder 2018, section 3.3) lets one more group of the
   body's weights train with each epoch; the Adam of an epoch that has a new group starts afresh.
3. After each epoch the held-out data decide. The weights of the best epoch, the frozen body's included, come back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from lbzoo._keras import adam
from lbzoo.errors import ConfigError
from lbzoo.models.bert_layers import Dropout
from lbzoo.optimizers.adamw import adamw
from lbzoo.optimizers.lamb import lamb
from lbzoo.optimizers.schedules import LinearDecay, warmup_steps
from lbzoo.optimizers.update import Update
from lbzoo.states import BATCH_SIZE, check_size
from lbzoo.text.batching import shuffled_batches
from lbzoo.transfer.encoders import Encoder
from lbzoo.transfer.examples import Examples
from lbzoo.transfer.heads import HEAD_C, Head, Scale, head_for

UNFREEZE = ("gradual", "all", "head")
OPTIMIZERS = ("adam", "adamw", "lamb")
_READ = 4096  # texts that are sorted by length together where features are read
SKIP_LIMIT = 10  # steps in a row whose gradient is not finite


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a head and a body are fine-tuned; see `lbzoo.TextClassifier` for each that it has.

    None stands for what the encoder's family is fine-tuned with, see `Encoder.defaults`.

    Attributes:
        warmup: share of all steps in which the rate rises.
        clip_norm: limit of the global gradient norm; 0 for none.
        optimizer: "adam" (no decay), "adamw" or "lamb" (layer norms and biases neither decayed nor adapted); None
            for Adam where weight_decay is 0, else AdamW.

    Raises:
        ConfigError: a value outside what can be honoured.
    """

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    unfreeze: str | None = None
    patience: int = 2
    language_model_weight: float = 0.0
    dropout: float | None = None
    warmup: float = 0.1
    clip_norm: float = 1.0
    optimizer: str | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            if getattr(self, name) is not None or name == "patience":
                check_size(name, getattr(self, name))
        for name, known in (("unfreeze", UNFREEZE), ("optimizer", OPTIMIZERS)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or value not in known):
                raise ConfigError(f"{name} must be one of {', '.join(known)}. Received: {name}={value!r}.")
        for name, high in _NUMBERS.items():
            value = getattr(self, name)
            if value is None and name in ("learning_rate", "dropout", "weight_decay"):
                continue
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not number or not 0 <= value < high or (name == "learning_rate" and not value):
                above = ">" if name == "learning_rate" else ">="
                raise ConfigError(f"{name} must be a number {above} 0 and < {high}. Received: {name}={value!r}.")
        if self.optimizer == "adam" and self.weight_decay:
            raise ConfigError(f"adam decays no weight; adamw does. Received: weight_decay={self.weight_decay!r}.")

    def filled(self, defaults: Mapping[str, Any]) -> Settings:
        """The same with these values in place of None."""
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if given.get("optimizer") == "adam":
            given["weight_decay"] = 0.0
        full = {**defaults, **given}
        return Settings(**{"optimizer": "adamw" if full["weight_decay"] else "adam", **full})


_NUMBERS = {  # what each must stay below
    "learning_rate": 1,
    "language_model_weight": 100,
    "dropout": 1,
    "warmup": 1,
    "clip_norm": float("inf"),
    "weight_decay": 1,
}


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What came of it: the head that belongs to the encoder's weights, and the story of each epoch (0: the head)."""

    head: Head
    history: list[dict[str, Any]]
    best_epoch: int


def finetune(
    encoder: Encoder,
    train: Examples,
    held_out: Examples | None,
    settings: Settings,
    seed: int,
    strategy: tf.distribute.Strategy | None = None,
) -> Tuned:
    """Fit a head and the encoder's weights, in place.

    Args:
        encoder: its model is trained; afterwards it has the best epoch's weights.
        train: what is learned. Targets that are whole numbers are positions of classes, with at least one row of each,
            and the loss is cross-entropy; floats are numbers of any unit, and the loss is the squared error in units of
            their variance.
        held_out: what decides; None trains all epochs and keeps the last weights.
        seed: of the order of the texts and of dropout; everything follows from it.
        strategy: the encoder was made in its scope; each batch is spread over its replicas, which end with the weights
            of one replica that has it whole, to float tolerance. All workers call this with the same examples.

    Raises:
        ConfigError: a language-model loss of an encoder that has none, or on several replicas.
        TrainingError: gradients that are not finite, many steps in a row.
    """
    settings, scale = settings.filled(encoder.defaults), Scale.of(train)
    train, held_out = scale.put(train), None if held_out is None else scale.put(held_out)
    language_model = encoder.language_model() if settings.language_model_weight else []
    if language_model and strategy is not None and strategy.num_replicas_in_sync > 1:
        raise ConfigError(
            "the language-model loss is a mean over the bytes of one device. Received: language_model_weight="
            f"{settings.language_model_weight} on {strategy.num_replicas_in_sync} replicas. Set it to 0."
        )
    features = _read(encoder, train)
    held_features = None if held_out is None else _read(encoder, held_out)
    head = _frozen_head(features, train, held_features, held_out)
    story = _Story(encoder, held_out, language_model)
    story.add("head", None, head, held_features)
    if settings.unfreeze != "head":
        _Run(encoder, head, train, language_model, settings, seed, strategy).epochs(story)
    tuned = story.end()
    return dataclasses.replace(tuned, head=scale.undo(tuned.head))


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
    """On the features of the frozen body, its penalty by the loss on held-out data."""
    best: tuple[float, Head] | None = None
    for C in HEAD_C if held_out is not None else HEAD_C[1:2]:
        head = head_for(train).fitted(features, train, C)
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
            row.update({"held_out_loss": found.loss, f"held_out_{head.measure}": found.score})
        if self.held_out is None or self.best is None or found.better_than(self.best):
            self.best = None if self.held_out is None else found
            self.best_epoch, self.head, self.kept = row["epoch"], head, [v.numpy() for v in self.variables]
        # where steps were skipped a loss is no number, which no file holds
        odd = [name for name, value in row.items() if isinstance(value, float) and not np.isfinite(value)]
        self.history.append({**row, **dict.fromkeys(odd)})

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
        strategy: tf.distribute.Strategy | None,
    ) -> None:
        self.encoder, self.train, self.settings, self.seed = encoder, train, settings, seed
        self.by_row, self.strategy = strategy is not None, strategy or tf.distribute.get_strategy()
        self.replicas = self.strategy.num_replicas_in_sync
        with self.strategy.scope():
            self.kind, self.coef, self.intercept = type(head), tf.Variable(head.coef), tf.Variable(head.intercept)
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
                    loss += float(step(*self._batch(index, rng.integers(2**31, size=2).astype(np.int32)))) * len(index)
                    update.check(SKIP_LIMIT)
                    bar.update()
                head = self.kind(self.coef.numpy(), self.intercept.numpy())
                story.add(f"head and {now} of {len(groups)} groups", loss / len(lengths), head)
                bar.set_postfix({k: f"{v:.4g}" for k, v in story.history[-1].items() if isinstance(v, float)})
                if story.held_out is not None and story.without_gain() >= self.settings.patience:
                    break

    def _batch(self, index: np.ndarray, seed: np.ndarray) -> tuple[Any, ...]:
        """What a step takes: arrays, or on several replicas each one's rows of them."""
        batch = self.encoder.batch([self.train.rows[i] for i in index])
        batch = (*batch, self.train.targets[index], self.train.weights[index])
        if not self.by_row:
            return (*batch, seed)
        batch = (*batch, np.stack([np.full(len(index), seed[0]), np.arange(len(index))], axis=1).astype(np.int32))
        return batch if self.replicas == 1 else self._spread(batch, len(index))

    def _spread(self, batch: tuple[np.ndarray, ...], rows: int) -> tuple[Any, ...]:
        """Equally many rows for each replica: the last one, without weight, fills up.

        All replicas have the longest row's length, so that all workers compile the same steps in the same order.
        """
        share = -(-rows // self.replicas)
        filled = np.minimum(np.arange(share * self.replicas), rows - 1)
        *batch, weights, seeds = (array[filled] for array in batch)
        weights = np.where(np.arange(len(filled)) < rows, weights * (len(filled) / rows), 0).astype(np.float32)

        def own(context: Any) -> tuple[tf.Tensor, ...]:
            begin = context.replica_id_in_sync_group * share
            return tuple(tf.convert_to_tensor(array[begin : begin + share]) for array in (*batch, weights, seeds))

        return self.strategy.experimental_distribute_values_from_function(own)

    def _stage(self, body: list[tf.Variable], done: int) -> tuple[Update, Callable[..., tf.Tensor]]:
        """The update of head and `body`, whose step 0 is step `done` of the schedule; compiled once."""
        variables = [*self.always, *body]
        with self.strategy.scope():
            optimizer = self._optimizer(variables)
        update = Update(
            variables, optimizer, lambda step: self.rates(step + done), self.settings.clip_norm, self.strategy
        )
        signature = [
            *self.encoder.signature,
            tf.TensorSpec([None], self.train.targets.dtype),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None, 2] if self.by_row else [2], tf.int32),
        ]

        def step(*inputs):
            def loss_function(*inputs):
                *batch, targets, weights, seed = inputs
                features, language_loss = self.encoder.forward(*batch, seed=seed)
                loss = tf.reduce_mean(weights * self._losses(features, targets, seed))
                if self.settings.language_model_weight:
                    loss += self.settings.language_model_weight * language_loss
                return loss, None

            return update(loss_function, *inputs)[0]

        if self.replicas > 1:  # a signature cannot say what each replica has
            return update, tf.function(step, reduce_retracing=True)
        return update, tf.function(step, input_signature=signature)

    def _optimizer(self, variables: list[tf.Variable]) -> Any:
        """The one that the settings name, for these variables."""
        rate, decay = self.rates.peak, self.settings.weight_decay
        if self.settings.optimizer == "adam":
            return adam(rate)
        named = {"head/kernel": self.coef, "head/bias": self.intercept, **self.encoder.model.named_weights()}
        trained = {variable.ref() for variable in variables}
        named = {name: variable for name, variable in named.items() if variable.ref() in trained}
        if self.settings.optimizer == "adamw":
            return adamw(rate, named, decay)
        return lamb(rate, named, "tf-models", decay)

    def _losses(self, features: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Loss of each row, float32 [rows]."""
        if self.settings.dropout and self.by_row:
            drop = Dropout(True, tf.bitwise.bitwise_xor(seed, [[1, 0]]))  # not what the body drops by
            features = drop(features, self.settings.dropout)
        elif self.settings.dropout:
            features = tf.nn.experimental.stateless_dropout(features, self.settings.dropout, seed)
        scores = tf.matmul(features, self.coef, transpose_b=True) + self.intercept
        return self.kind.losses(scores, targets)
