"""A trained mLSTM as the start of a wider one that computes the same: nothing learnt is learnt again.

The old units keep their weights and hear nothing of the new ones, whose way into old units, next byte and read-out
starts at zero (Chen, Goodfellow & Shlens 2016, "Net2Net", in the form that adds units instead of splitting them). The
new units start at random and hear everybody, so that gradients tell them apart from the first step.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import NORMED, initial_weights


def widened(
    config: MLSTMConfig, weights: Mapping[str, np.ndarray], units: int, seed: int, memory: int = 0
) -> dict[str, np.ndarray]:
    """The weights of `units` units that give the same logits as `weights`.

    Args:
        config: of the trained model.
        weights: its weights by name, in the form (v, g) where `config.weight_norm`.
        units: at least as many as it has.
        seed: of the new units' weights.
        memory: see `long_memories`, for the new units.

    Raises:
        ConfigError: fewer units than the model has.
    """
    n = config.units
    if units < n:
        raise ConfigError(f"a model cannot be widened to fewer units. Received: {units}; it has {n}.")
    wide = initial_weights(dataclasses.replace(config, units=units), seed)
    if memory:
        wide["b"] = long_memories(wide["b"], units, memory, seed, first=n)
    gates = np.concatenate([gate * units + np.arange(n) for gate in range(4)])  # the old units' columns of i, f, o, u
    for name, columns in (("wx", gates), ("wh", gates), ("wmx", np.arange(n)), ("wmh", np.arange(n))):
        rows = n if name in ("wh", "wmh") else config.embedding_dim
        wide[name][:, columns] = 0
        wide[name][:rows, columns] = weights[name]
        if config.weight_norm:
            wide[NORMED[name]][columns] = weights[NORMED[name]]
    wide["b"][gates] = weights["b"]
    wide["embedding"][:] = weights["embedding"]
    if config.output:
        wide["out_w"][:] = 0
        wide["out_w"][:n] = weights["out_w"]
        wide["out_b"][:] = weights["out_b"]
    return wide


def long_memories(bias: np.ndarray, units: int, memory: int, seed: int, first: int = 0) -> np.ndarray:
    """Gate biases [4 * units] with which half the units from `first` on keep half their state for up to `memory` bytes.

    Forget bias log(T - 1), input bias its negative, T uniform in its logarithm (Tallec & Ollivier 2018).
    """
    chosen = first + np.arange((units - first) // 2)
    spans = np.exp(np.random.default_rng(seed).uniform(np.log(2), np.log(memory), len(chosen)))
    bias = bias.copy()
    bias[units + chosen] = np.log(spans - 1 + 1e-3)
    bias[chosen] = -bias[units + chosen]
    return bias
