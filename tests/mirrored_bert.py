"""Trains a small BERT through both phases on one and on two replicas, prints what it ends with as JSON for its test.

A process of its own, since the logical devices must be set before TensorFlow starts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from training.bert_data import BertBatch
from training.bert_recipes import BertRunConfig, PhaseConfig, recipe
from training.bert_trainer import BertTrainer
from training.cluster import Cluster

VOCABULARY = Vocabulary([*SPECIAL, *(f"piece{i}" for i in range(59))])


class MadeUp:
    """Rows of very different length, of which the first have one token to predict and the last have all."""

    def __init__(self, phase: PhaseConfig) -> None:
        self.phase = phase

    def batch(self, step: int, rows: slice = slice(None)) -> BertBatch:
        phase, rng = self.phase, np.random.default_rng([step, self.phase.length])
        shape = (phase.rows, phase.predictions)
        lengths = np.linspace(4, phase.length, phase.rows).round().astype(int)[:, None]
        many = np.linspace(1, phase.predictions, phase.rows).round().astype(int)[:, None]
        place = np.arange(phase.length)[None]
        whole = BertBatch(
            ids=rng.integers(5, len(VOCABULARY), (phase.rows, phase.length)).astype(np.int32),
            segments=(place >= lengths // 2).astype(np.int32),
            mask=place < lengths,
            positions=rng.integers(0, 4, shape).astype(np.int32),
            labels=rng.integers(5, 9, shape).astype(np.int32),
            weights=(np.arange(phase.predictions)[None] < many).astype(np.float32),
            following=rng.integers(0, 2, phase.rows).astype(np.int32),
            starts=rng.integers(0, 20, phase.rows).astype(np.int32),
        )
        return BertBatch(**{name: values[rows] for name, values in whole.fields().items()})


def small(**changes) -> BertRunConfig:
    """The tiny recipe, made smaller."""
    base = recipe("tiny")
    model = dataclasses.replace(base.model, vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1)
    phases = {
        "first": PhaseConfig(steps=3, rows=8, length=12, predictions=4),
        "second": PhaseConfig(steps=2, rows=4, length=20, predictions=6),
    }
    optimizer = dataclasses.replace(base.optimizer, learning_rate=0.05)
    return dataclasses.replace(base, model=model, optimizer=optimizer, **{**phases, **changes})


def trainer(config: BertRunConfig, strategy=None) -> BertTrainer:
    return BertTrainer(config, [MadeUp(phase) for phase in config.phases], VOCABULARY, cluster=Cluster(strategy))


def trajectory(config: BertRunConfig, strategy=None) -> dict:
    """What each step logs, and the weights at the end."""
    run = trainer(config, strategy)
    logged = [{k: float(v) for k, v in run.step(t).items()} for t in range(config.steps)]
    return {"logged": logged, "weights": {k: v.numpy().tolist() for k, v in run.model.named_weights().items()}}


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    first = small(second=PhaseConfig())
    pieces = dataclasses.replace(first, first=dataclasses.replace(first.first, micro_rows=2))
    results = {"one": trajectory(first), "two in pieces": trajectory(pieces, two)}
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
