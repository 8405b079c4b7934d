"""What a run trains, and one run of it: model, update and the state of every row, led by `training.loop`.

The rows of a batch are divided evenly over the replicas, in their order: replica r of R reads and remembers the rows
from r B / R on. A checkpoint holds the state of all B rows, whoever had them, so any number of replicas can go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping, Optional

import numpy as np
import tensorflow as tf

from lbzoo._keras import adam
from lbzoo.console import quiet_first_call
from lbzoo.errors import ConfigError
from lbzoo.folder import PROBE
from lbzoo.loading import load_with_folder
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.optimizers.loss_scale import loss_scale_for
from lbzoo.optimizers.update import Update
from lbzoo.transfer import probe_file
from training import loop, plan, replicas
from training.checkpointing import AgreedCheckpoints
from training.cluster import Cluster
from training.data import ByteStream
from training.evaluate import bits_per_character, read_out_accuracy
from training.heldout import held_out, held_out_shards
from training.objectives import BITS, SentimentReadOut, language_model_loss, sentiment_loss
from training.recipes import RunConfig
from training.watch import Watch
from training.widen import long_memories, widened


class Trainer:
    """A model, its read-out, its update and the state of every row: all that a checkpoint holds.

    Args:
        config: what is computed.
        stream: gives the batch of a step.
        cluster: the devices and workers that share each batch; None for this process and its default device.

    Attributes:
        state: (c, h) of this worker's rows, float32 [rows, units] per replica.

    Raises:
        ConfigError: the rows of a batch cannot be divided evenly.
    """

    def __init__(self, config: RunConfig, stream: ByteStream, cluster: Optional[Cluster] = None) -> None:
        self.config, self.stream, self.cluster = config, stream, cluster or Cluster()
        self.strategy = self.cluster.strategy
        pieces = plan.micro_batches(config, self.strategy.num_replicas_in_sync)
        rates, o = plan.schedule(config, stream.steps_per_epoch), config.optimizer
        with self.strategy.scope():
            self.model, self.read_out = _start(config)
            optimizer = adam(rates.peak, o.beta_1, o.beta_2, o.epsilon)
        variables = list(self.model.trainable_variables)
        if config.sentiment_weight:
            variables += self.read_out.trainable_variables
        scale = loss_scale_for(config.precision, config.loss_scale)
        self.update = Update(
            variables, optimizer, rates, o.clip_norm, self.strategy, scale, pieces, config.reduce_dtype
        )
        # every row's, on the host: what a checkpoint holds; the replicas' own tensors are `state`
        zeros = np.zeros([config.data.rows, config.model.units], np.float32)
        self._rows = [tf.Variable(zeros, trainable=False, name=name) for name in ("c", "h")]
        self.scatter()
        self._step = tf.function(self.update_on, autograph=False)
        self._together = tf.function(lambda own: self.strategy.gather(own, axis=0))

    def objects(self) -> dict[str, Any]:
        """For `Checkpoints`; call `gather` before they are written and `scatter` after they are read."""
        return {
            "model": self.model.named_weights(),
            "read_out": self.read_out.trainable_variables,
            "state": self._rows,
            **self.update.state(),
        }

    def gather(self) -> None:
        """Bring every row's state together; all workers call it."""
        for rows, own in zip(self._rows, self.state):
            rows.assign(self._together(own))

    def scatter(self) -> None:
        """Give each replica its rows' state."""
        whole = tuple(rows.numpy() for rows in self._rows)
        self.state = self._spread(lambda rows: tuple(values[rows] for values in whole))

    def step(self, number: int) -> Mapping[str, Any]:
        """Do step `number` on its batch; scalar tensors to log, the same on every worker."""

        def values(rows: slice):
            batch = self.stream.batch(number, rows)
            target = np.zeros(batch.ids.shape, np.float32) if batch.target is None else batch.target
            return batch.ids, batch.next_ids, batch.reset, target

        scalars, self.state = self._step(*self._spread(values), *self.state)
        return {"characters": self.config.data.rows * self.config.data.window, **scalars}

    def _spread(self, values: Callable[[slice], Any]) -> Any:
        return replicas.spread(self.strategy, self.config.data.rows, values)

    def update_on(self, ids, next_ids, reset, target, c, h):
        """The step as a graph: one update; (scalar tensors to log, the new state of the rows)."""

        def loss_function(ids, next_ids, reset, target, c, h):
            hidden, state = self.model.mlstm(ids, state=(c, h), reset=reset)
            characters = language_model_loss(self.model.logits(hidden), next_ids)
            loss, sentiment = characters, tf.constant(0.0)
            if self.config.sentiment_weight:
                sentiment = sentiment_loss(self.read_out(hidden), target)
                loss = loss + self.config.sentiment_weight * sentiment
            state = tuple(tf.where(tf.math.is_finite(values), values, 0.0) for values in state)
            return loss, (characters, sentiment, state)

        loss, norm, (characters, sentiment, state) = self.update(loss_function, ids, next_ids, reset, target, c, h)
        characters, sentiment = replicas.means(self.strategy, [characters, sentiment])
        values = {"loss": loss, "bpc": characters * BITS, "sentiment": sentiment, "norm": norm}
        values.update(rate=self.update.optimizer.learning_rate, skipped=self.update.skipped)
        if self.update.scaler is not None:
            values["loss_scale"] = self.update.scaler.value
        return {name: tf.convert_to_tensor(value) for name, value in values.items()}, state

    def checksum(self) -> str:
        """Of every trained weight, bit by bit."""
        return replicas.checksum(self.update.variables)


class TrainerCheckpoints(AgreedCheckpoints):
    """Checkpoints of a trainer, with the state of every row."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        super().__init__(folder, trainer.objects(), trainer.cluster)
        self._trainer = trainer

    def save(self, step: int, note: Mapping[str, Any]) -> Path:
        """See `Checkpoints.save`."""
        self._trainer.gather()
        return super().save(step, note)

    def restore(self, best: bool = False) -> Optional[dict[str, Any]]:
        """See `AgreedCheckpoints.restore`."""
        commit = super().restore(best)
        self._trainer.scatter()
        return commit


def _start(config: RunConfig) -> tuple[MLSTMLanguageModel, SentimentReadOut]:
    """The model and its read-out before the first step: random, or those of `config.init_from`, widened if need be."""
    units = config.model.units
    model = MLSTMLanguageModel(config.model, text=config.text, seed=config.seed, dtype=config.precision)
    read_out, weights = SentimentReadOut(units), model.named_weights()
    if config.init_from:
        trained, folder = load_with_folder(config.init_from)
        for name, value in widened(trained, config.model, config.seed, config.memory).items():
            weights[name].assign(value)
        if config.sentiment_weight and (folder / PROBE).exists():
            read_out.start_from(probe_file.load(folder))
    elif config.memory:
        weights["b"].assign(long_memories(weights["b"].numpy(), units, config.memory, config.seed))
    return model, read_out


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
    cluster: Optional[Cluster] = None,
    best: bool = False,
) -> tuple[Trainer, loop.End]:
    """Run `config` in folder `run`; the trainer with its last weights, and how the run ended.

    Every worker of `cluster` calls this; they share `run`, and the chief writes.
    """
    cluster = cluster or Cluster()
    stream = open_stream(config, shards)
    if config.sentiment_weight and not stream.has_target:
        raise ConfigError(
            f"sentiment_weight {config.sentiment_weight:g} needs the teacher's target of every byte. "
            f"Received: {shards}, text only. Make shards with training.prepare_sentiment, or --set sentiment_weight=0."
        )
    trainer = Trainer(config, stream, cluster)
    sets = held_out(data) if data else held_out_shards(shards)

    def evaluate() -> Mapping[str, float]:
        w, b = trainer.read_out.w.numpy(), float(trainer.read_out.b.numpy())
        model = trainer.model.folded()
        figures = {"bpc": bits_per_character(model, sets.characters, cluster=cluster)}
        for name, (texts, positive) in sets.labelled.items():
            figures[name] = read_out_accuracy(model, w, b, texts, positive, cluster)
        return figures

    end = loop.run(
        folder=run,
        config={**config.to_dict(), "shards": stream.index["sha256"]},
        steps=config.steps,
        checkpoints=TrainerCheckpoints(run, trainer),
        watch=Watch(run, config.steps, tensorboard=tensorboard, profile=profile, writes=cluster.chief),
        step_function=quiet_first_call(trainer.step),
        evaluate=None if sets is None else evaluate,
        check=trainer.update.check,
        save_every=config.save_every,
        evaluate_every=config.evaluate_every,
        minutes=minutes,
        accept_changes=accept_changes,
        cluster=cluster,
        best=best,
    )
    return trainer, end


def restore_best(run: Path, trainer: Trainer) -> dict[str, Any]:
    """Go back to the checkpoint in `run` with the fewest held-out bits per character; its COMMIT.json.

    All workers call it.

    Raises:
        ConfigError: none was measured.
    """
    commit = TrainerCheckpoints(run, trainer).restore(best=True)
    if commit is None:
        raise ConfigError(
            f"no checkpoint in {run} was measured on held-out text: --best needs shards with 'valid', or --data."
        )
    return commit
