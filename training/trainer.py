"""What a run trains, and one run of it: model, update and the state of every row, led by `training.loop`."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Mapping, Optional

import numpy as np
import tensorflow as tf

from lbzoo._keras import adam
from lbzoo.checkpoint import load
from lbzoo.errors import ConfigError
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.optimizers.loss_scale import loss_scale_for
from lbzoo.optimizers.update import Update
from training import loop, plan
from training.checkpointing import Checkpoints
from training.data import ByteStream
from training.evaluate import bits_per_character, read_out_accuracy
from training.heldout import held_out
from training.objectives import BITS, SentimentReadOut, language_model_loss, sentiment_loss
from training.recipes import RunConfig
from training.watch import Watch


class Trainer:
    """A model, its read-out, its update and the state of every row: all that a checkpoint holds."""

    def __init__(self, config: RunConfig, stream: ByteStream) -> None:
        self.config, self.stream = config, stream
        self.model = _start(config)
        self.read_out = SentimentReadOut(config.model.units)
        variables = list(self.model.trainable_variables)
        if config.sentiment_weight:
            variables += self.read_out.trainable_variables
        rates, o = plan.schedule(config, stream.steps_per_epoch), config.optimizer
        self.update = Update(
            variables,
            adam(rates.peak, o.beta_1, o.beta_2, o.epsilon),
            rates,
            o.clip_norm,
            loss_scale=loss_scale_for(config.precision, config.loss_scale),
            accumulate=plan.micro_batches(config),
        )
        shape = [config.data.rows, config.model.units]
        self.state = [tf.Variable(tf.zeros(shape), trainable=False, name=name) for name in ("c", "h")]
        self._step = tf.function(self.update_on)

    def objects(self) -> dict[str, Any]:
        """For `Checkpoints`."""
        return {
            "model": self.model.named_weights(),
            "read_out": self.read_out.trainable_variables,
            "state": self.state,
            **self.update.state(),
        }

    def step(self, number: int) -> Mapping[str, Any]:
        """Do step `number` on its batch; scalar tensors to log."""
        batch = self.stream.batch(number)
        target = np.zeros(batch.ids.shape, np.float32) if batch.target is None else batch.target
        values = self._step(batch.ids, batch.next_ids, batch.reset, target)
        return {"characters": batch.ids.size, **values}

    def update_on(self, ids, next_ids, reset, target):
        """The step as a graph: one update, the new state of every row, scalar tensors to log."""

        def loss_function(ids, next_ids, reset, target, c, h):
            hidden, state = self.model.mlstm(ids, state=(c, h), reset=reset)
            characters = language_model_loss(self.model.logits(hidden), next_ids)
            loss, sentiment = characters, tf.constant(0.0)
            if self.config.sentiment_weight:
                sentiment = sentiment_loss(self.read_out(hidden), target)
                loss = loss + self.config.sentiment_weight * sentiment
            return loss, (characters, sentiment, state)

        state = [tf.convert_to_tensor(variable) for variable in self.state]
        loss, norm, (characters, sentiment, state) = self.update(loss_function, ids, next_ids, reset, target, *state)
        for variable, value in zip(self.state, state):
            variable.assign(tf.where(tf.math.is_finite(value), value, 0.0))
        values = {"loss": loss, "bpc": characters * BITS, "sentiment": sentiment, "norm": norm}
        values.update(rate=self.update.optimizer.learning_rate, skipped=self.update.skipped)
        if self.update.scaler is not None:
            values["loss_scale"] = self.update.scaler.value
        return {name: tf.convert_to_tensor(value) for name, value in values.items()}

    def checksum(self) -> str:
        """Of every trained weight, bit by bit."""
        total = 0
        for variable in self.update.variables:
            total = zlib.crc32(np.ascontiguousarray(variable.numpy()), total)
        return f"{total:08x}"


def _start(config: RunConfig) -> MLSTMLanguageModel:
    model = MLSTMLanguageModel(config.model, text=config.text, seed=config.seed, dtype=config.precision)
    weights = model.named_weights()
    if config.init_from:
        for name, value in load(config.init_from).unfolded().named_weights().items():
            weights[name].assign(value)
    elif config.memory:
        # forget bias log(T - 1), input bias its negative: half a state is kept for T bytes (Tallec & Ollivier 2018)
        n, half = config.model.units, config.model.units // 2
        spans = np.exp(np.random.default_rng(config.seed).uniform(np.log(2), np.log(config.memory), half))
        bias = weights["b"].numpy()
        bias[n : n + half] = np.log(spans - 1 + 1e-3)
        bias[:half] = -bias[n : n + half]
        weights["b"].assign(bias)
    return model


def open_stream(config: RunConfig, shards: Path) -> ByteStream:
    """The bytes that `config` trains on."""
    data = config.data
    return ByteStream(shards, data.rows, data.window, config.seed, data.shard_bytes, data.reset)


def train(
    config: RunConfig,
    shards: Path,
    run: Path,
    data: Optional[Path],
    minutes: Optional[float],
    accept_changes: bool = False,
    tensorboard: bool = False,
    profile: bool = False,
) -> tuple[Trainer, loop.End]:
    """Run `config` in folder `run`; the trainer with its last weights, and how the run ended."""
    stream = open_stream(config, shards)
    if config.sentiment_weight and not stream.has_target:
        raise ConfigError(
            f"sentiment_weight {config.sentiment_weight:g} needs the teacher's target of every byte. "
            f"Received: {shards}, text only. Make shards with training.prepare_sentiment, or --set sentiment_weight=0."
        )
    trainer = Trainer(config, stream)
    sets = held_out(data) if data else None

    def evaluate() -> Mapping[str, float]:
        w, b = trainer.read_out.w.numpy(), float(trainer.read_out.b.numpy())
        model = trainer.model.folded()
        if sets is None:
            return {}
        figures = {"bpc": bits_per_character(model, sets.characters)}
        for name, (texts, positive) in sets.labelled.items():
            figures[name] = read_out_accuracy(model, w, b, texts, positive)
        return figures

    end = loop.run(
        folder=run,
        config={**config.to_dict(), "shards": stream.index["sha256"]},
        steps=config.steps,
        checkpoints=Checkpoints(run, trainer.objects()),
        watch=Watch(run, config.steps, tensorboard=tensorboard, profile=profile),
        step_function=trainer.step,
        evaluate=evaluate,
        check=trainer.update.check,
        save_every=config.save_every,
        evaluate_every=config.evaluate_every,
        minutes=minutes,
        accept_changes=accept_changes,
    )
    return trainer, end
