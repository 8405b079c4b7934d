"""Trains a small network with each optimizer on one and on two replicas and prints the weights as JSON, for its test.

A process of its own, since the logical devices must be set before TensorFlow starts.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from lbzoo.optimizers.adamw import adamw
from lbzoo.optimizers.lamb import lamb
from lbzoo.optimizers.lars import LARS
from lbzoo.optimizers.schedules import LinearDecay
from lbzoo.optimizers.update import Update
from tests import optimizer_reference as reference

ROWS, STEPS = 16, 5
OPTIMIZERS = {
    "lamb": lambda names: lamb(0.1, names, "nvidia", 0.1),
    "lars": lambda names: LARS(0.1, names, weight_decay=0.1, exclude_from_layer_adaptation=["bias"]),
    "adamw": lambda names: adamw(0.1, names, 0.1),
}


def batch(step: int):
    rng = np.random.default_rng([3, step])
    return rng.normal(size=(ROWS, 5)).astype(np.float32), rng.integers(0, 6, ROWS)


def train(strategy: tf.distribute.Strategy, make) -> list:
    """[the weights on each replica by name, the trust ratios where the optimizer has them]"""
    with strategy.scope():
        names = {name: tf.Variable(value, name="weight") for name, value in reference.start().items()}
        optimizer = make(names)
    update = Update(list(names.values()), optimizer, LinearDecay(0.1, 10, warmup=2), 0.5, strategy)

    def loss(x, ids):
        hidden = tf.tanh(x @ names["attention.kernel"] + names["attention.bias"]) * names["norm.scale"]
        words = tf.gather(names["words"], ids) + names["zero"]  # sparse, with rows that come twice
        return tf.reduce_mean(tf.reduce_sum(hidden, 1) * tf.reduce_sum(words**2 + words, 1)), None

    step = tf.function(lambda x, ids: update(loss, x, ids)[0])
    total = strategy.num_replicas_in_sync
    for t in range(STEPS):
        parts = [np.array_split(values, total) for values in batch(t)]
        give = strategy.experimental_distribute_values_from_function
        step(*(give(lambda context, p=p: tf.constant(p[context.replica_id_in_sync_group])) for p in parts))
    local = strategy.experimental_local_results
    ratios = getattr(optimizer, "trust_ratios", dict)()
    return [
        {name: [copy.numpy().tolist() for copy in local(weight)] for name, weight in names.items()},
        {name: float(ratio) for name, ratio in ratios.items()},
    ]


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategies = {"one": tf.distribute.get_strategy(), "two": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])}
    results = {name: {k: train(s, make) for k, s in strategies.items()} for name, make in OPTIMIZERS.items()}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
