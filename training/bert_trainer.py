"""What a run of BERT trains: the model, its optimizer, the step of each phase."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from lbzoo.errors import ConfigError
from lbzoo.loading import load
from lbzoo.models.bert import BertForPreTraining
from lbzoo.optimizers.adamw import adamw
from lbzoo.optimizers.lamb import lamb
from lbzoo.optimizers.loss_scale import loss_scale_for
from lbzoo.optimizers.update import Update
from lbzoo.text.vocabulary import Vocabulary
from training import bert_objectives, bert_plan, replicas
from training.bert_data import BertStream
from training.bert_recipes import BertOptimizerConfig, BertRunConfig
from training.cluster import Cluster

PHASES = ("first", "second")


class BertTrainer:
    """A model and its update: all that a checkpoint holds, since the data are a function of seed and step.

    Args:
        config: what is computed.
        streams: of each phase, gives the batch of a step.
        vocabulary: the word pieces of the streams.
        text: how a text is prepared for the vocabulary, see `lbzoo.text.vocabulary.READINGS`.
        cluster: the devices and workers that share each batch; None for this process and its default device.

    Raises:
        ConfigError: the vocabulary does not fit into the model, or the rows cannot be divided evenly.
    """

    def __init__(
        self,
        config: BertRunConfig,
        streams: Sequence[BertStream],
        vocabulary: Vocabulary,
        text: str = "uncased",
        cluster: Optional[Cluster] = None,
    ) -> None:
        self.config, self.streams, self.cluster = config, streams, cluster or Cluster()
        self.strategy = self.cluster.strategy
        count = self.strategy.num_replicas_in_sync
        pieces = [bert_plan.micro_batches(*pair) for pair in zip(config.phases, [count] * 2, PHASES)]
        rates = bert_plan.schedule(config)
        with self.strategy.scope():
            self.model = _start(config, vocabulary, text)
            self.optimizer = make_optimizer(config.optimizer, self.model.named_weights())
        self.update = Update(
            list(self.model.named_weights().values()),
            self.optimizer,
            rates,
            config.optimizer.clip_norm,
            self.strategy,
            loss_scale_for(config.precision, config.loss_scale),
            reduce_dtype=config.reduce_dtype,
        )
        self._steps = [tf.function(functools.partial(self.update_on, count), autograph=False) for count in pieces]

    def objects(self) -> dict[str, Any]:
        """For `Checkpoints`."""
        return {"model": self.model.named_weights(), **self.update.state()}

    def place(self, number: int) -> Tuple[int, int, int]:
        """(phase, step within it, rows that were read before that step) of the step numbered from 0."""
        first = self.config.first
        if number < first.steps:
            return 0, number, number * first.rows
        within = number - first.steps
        return 1, within, first.steps * first.rows + within * self.config.second.rows

    def step(self, number: int) -> Mapping[str, Any]:
        """Do step `number` on its batch; scalar tensors to log, the same on every worker."""
        index, within, read = self.place(number)
        phase = self.config.phases[index]

        def values(rows: slice):
            batch = self.streams[index].batch(within, rows).fields()
            # dropout goes by the row's number in all that is read: the same on one worker and on many, and on resuming
            numbers = tf.range(read + rows.start, read + rows.stop, dtype=tf.int64)
            return {
                **batch,
                "seed": tf.stack([tf.fill(tf.shape(numbers), tf.cast(self.config.seed, tf.int64)), numbers], 1),
            }

        found = self._steps[index](replicas.spread(self.strategy, phase.rows, values))
        return {"tokens": phase.rows * phase.length, **found}

    def update_on(self, pieces: int, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """The step as a graph: one update in `pieces` micro-batches; scalar tensors to log."""
        self.update.accumulate = pieces  # read while this is traced, once a phase
        shares = self.strategy.run(bert_objectives.shares, args=(batch["weights"],))
        loss, norm, scalars = self.update(self._loss, batch, shares)
        values = dict(zip(bert_objectives.NAMES, replicas.means(self.strategy, scalars)), loss=loss, norm=norm)
        values.update(rate=self.optimizer.learning_rate, skipped=self.update.skipped)
        if self.update.scaler is not None:
            values["loss_scale"] = self.update.scaler.value
        return {name: tf.convert_to_tensor(value) for name, value in values.items()}

    def _loss(self, batch: Mapping[str, tf.Tensor], shares: tf.Tensor) -> Tuple[tf.Tensor, List[tf.Tensor]]:
        rows = tf.cast(tf.shape(shares)[0], tf.float32)
        totals = bert_objectives.sums(self.model, batch, shares, training=True, dropout=self.config.dropout)
        scalars = [total / rows for total in totals]
        return scalars[0] + scalars[1], scalars

    def checksum(self) -> str:
        """Of every trained weight, bit by bit."""
        return replicas.checksum(self.update.variables)


def make_optimizer(config: BertOptimizerConfig, names: Mapping[str, tf.Variable]) -> Any:
    """The optimizer that a recipe names.

    Raises:
        ConfigError: an unknown name or preset, or numbers out of range.
    """
    numbers = dict(weight_decay=config.weight_decay, beta_1=config.beta_1, beta_2=config.beta_2, epsilon=config.epsilon)
    if config.name == "lamb":
        return lamb(config.learning_rate, names, config.preset, **numbers)
    if config.name == "adamw":
        return adamw(config.learning_rate, names, **numbers)
    raise ConfigError(f"there is no such optimizer. Received: optimizer.name={config.name!r}. Known: lamb, adamw.")


def _start(config: BertRunConfig, vocabulary: Vocabulary, text: str) -> BertForPreTraining:
    model = BertForPreTraining(config.model, text, vocabulary=vocabulary, seed=config.seed, dtype=config.precision)
    if config.init_from:
        given = load(config.init_from)
        shape = dataclasses.replace(config.model.encoder(), pooler=given.config.pooler)
        if given.config.encoder() != shape or given.vocabulary != vocabulary:
            raise ConfigError(
                f"a run goes on from a model of the same shape and vocabulary. Received: init_from={config.init_from} "
                f"with {given.config}."
            )
        for name, value in given.with_head("pretraining", seed=config.seed).named_weights().items():
            model.named_weights()[name].assign(value)
    return model
