"""Runs the update under MirroredStrategy on two logical CPUs and prints what happened as JSON, for its test.

A process of its own, since the logical devices must be set before TensorFlow starts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import types

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from lbzoo._keras import adam
from lbzoo.errors import TrainingError
from lbzoo.optimizers.loss_scale import LossScaleConfig
from lbzoo.optimizers.schedules import LinearDecay
from lbzoo.optimizers.update import Update
from training.cluster import Cluster
from training.data import Batch
from training.recipes import recipe
from training.trainer import Trainer

ROWS, INF = 16, float("inf")


class Run:
    """A small network, its update and its compiled step on the replicas of one strategy."""

    def __init__(self, strategy: tf.distribute.Strategy, accumulate: int = 1, reduce_dtype: str = "float32") -> None:
        self.strategy, rng = strategy, np.random.default_rng(0)
        with strategy.scope():
            self.w = tf.Variable(rng.normal(0, 0.5, (8, 6)).astype(np.float32), name="w")
            self.v = tf.Variable(rng.normal(0, 0.5, (6,)).astype(np.float32), name="v")
            optimizer = adam(1e-2)
        loss_scale = LossScaleConfig(start=1.0) if reduce_dtype == "float16" else LossScaleConfig()
        self.update = Update(
            [self.w, self.v],
            optimizer,
            LinearDecay(1e-2, 50),
            0.5,
            strategy,
            loss_scale,
            accumulate,
            reduce_dtype,
        )
        self.step = tf.function(lambda x, y, poison: self.update(self._loss, x, y, poison)[:2])

    def _loss(self, x, y, poison):
        error = tf.linalg.matvec(tf.tanh(x @ self.w), self.v) - y
        return tf.reduce_mean(error**2 * poison), tf.reduce_mean(error)

    def do(self, x, y, poison):
        """One step; poison [replicas] multiplies each replica's loss."""
        total = self.strategy.num_replicas_in_sync

        def rows(values):
            return lambda context: tf.constant(np.array_split(values, total)[context.replica_id_in_sync_group])

        poison = np.repeat(np.float32(poison), ROWS // total)
        give = self.strategy.experimental_distribute_values_from_function
        loss, norm = self.step(*(give(rows(values)) for values in (x, y, poison)))
        return float(loss), float(norm)

    def everything(self):
        """Every number of every replica: weights, slots, iterations, learning rate."""
        variables = (self.w, self.v, *self.update.optimizer.variables(), self.update.optimizer.learning_rate)
        return [[c.numpy().tolist() for c in self.strategy.experimental_local_results(v)] for v in variables]


def batch(step: int):
    x = np.random.default_rng([1, step]).normal(size=(ROWS, 8)).astype(np.float32)
    return x, x.sum(1)


def one_bad_gradient(strategy) -> dict:
    run = Run(strategy)
    for t in range(3):
        run.do(*batch(t), [1.0, 1.0])
    before = run.everything()
    run.do(*batch(3), [1.0, INF])
    after = run.everything()
    found = {"unchanged": before == after, "copies": [len(copies) for copies in after]}
    found["scale"], found["skipped"] = float(run.update.scaler.value.numpy()), int(run.update.skipped.numpy())
    run.do(*batch(4), [1.0, 1.0])
    found["iterations"] = int(run.update.optimizer.iterations.numpy())
    found["rate"] = float(run.update.optimizer.learning_rate.numpy())
    found["in_a_row"] = int(run.update.skipped_in_a_row.numpy())
    found["same_on_both"] = all(copy == copies[0] for copies in run.everything() for copy in copies)
    for t in range(10):
        run.update.check(10)
        run.do(*batch(t), [1.0, INF])
    try:
        run.update.check(10)
    except TrainingError as error:
        found["error"] = str(error)
    return found


def overflow_on_the_way(strategy) -> dict:
    """Finite in float32 on each replica, beyond float16 on the second."""
    run = Run(strategy, reduce_dtype="float16")
    before = run.everything()
    run.do(*batch(0), [1.0, 1e6])
    found = {"unchanged": before == run.everything(), "skipped_by": int(run.update.skipped_by.numpy())}
    run.do(*batch(0), [1.0, 1.0])
    return {**found, "iterations": int(run.update.optimizer.iterations.numpy())}


def trajectory(strategy, accumulate: int = 1, reduce_dtype: str = "float32") -> dict:
    run = Run(strategy, accumulate, reduce_dtype)
    scalars = [run.do(*batch(t), [1.0] * strategy.num_replicas_in_sync) for t in range(8)]
    return {"scalars": scalars, "w": run.w.numpy().tolist(), "v": run.v.numpy().tolist()}


def mlstm_run(strategy, micro_rows: int) -> dict:
    """Steps of the mLSTM's trainer; between them its rows' state is taken together and given out again."""
    config = dataclasses.replace(recipe("tiny"), micro_rows=micro_rows)
    start = np.random.default_rng(0).integers(0, 64, (config.data.rows, 1))
    window = np.arange(config.data.window + 1)

    def rows_of(step, rows):
        ids = ((start[rows] + step * config.data.window + window) % 64 + 32).astype(np.int32)
        return Batch(ids[:, :-1], ids[:, 1:], ids[:, :-1] == 32, np.ones((len(ids), len(window) - 1), np.float32))

    trainer = Trainer(config, types.SimpleNamespace(batch=rows_of, steps_per_epoch=100), Cluster(strategy))
    bits = []
    for step in range(3):
        bits.append(float(trainer.step(step)["bpc"]))
        trainer.gather()
        trainer.scatter()
    state, weights = (
        np.concatenate([v.numpy().ravel() for v in part])
        for part in (trainer.objects()["state"], trainer.update.variables)
    )
    return {"bits": bits, "state": state.tolist(), "weights": weights.tolist()}


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    one = tf.distribute.get_strategy()
    results = {
        "bad": one_bad_gradient(two),
        "one": trajectory(one),
        "two": trajectory(two),
        "two accumulated": trajectory(two, 4),
        "one accumulated": trajectory(one, 8),
        "two in float16": trajectory(two, reduce_dtype="float16"),
        "two in bfloat16": trajectory(two, reduce_dtype="bfloat16"),
        "one in bfloat16": trajectory(one, reduce_dtype="bfloat16"),
        "mlstm on one": mlstm_run(one, 0),
        "mlstm on two": mlstm_run(two, 2),
        "overflow": overflow_on_the_way(two),
    }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
