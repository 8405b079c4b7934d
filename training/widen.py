"""A trained mLSTM as the start of a wider one that computes the same: nothing learnt is learnt again.

The old units keep their weights and hear nothing of the new ones, whose way into old units, next byte and read-out
starts at zero (Chen, Goodfellow & Shlens 2016, "Net2Net", in the form that adds units instead of splitting them). The
new units start at random and hear everybody, so that gradients tell them apart from the first step.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import NORMED, MLSTMLanguageModel, initial_weights


def widened(trained: MLSTMLanguageModel, config: MLSTMConfig, seed: int, memory: int = 0) -> dict[str, np.ndarray]:
    """Weights for a model of `config` that gives the same logits as `trained`.

    Args:
        trained: with as many units or fewer.
        config: with the same vocabulary, embedding and layers.
        seed: of the new units' weights.
        memory: see `long_memories`, for the new units.

    Raises:
        ConfigError: the two differ in more than units, or there are fewer units than `trained` has.
    """
    if isinstance(trained, MLSTMLanguageModel):
        trained = trained.unfolded() if config.weight_norm else trained.folded()
    if dataclasses.replace(config, units=getattr(trained.config, "units", 0)) != trained.config:
        raise ConfigError(
            f"a run goes on from an mLSTM of the same form. Received: {trained.config}; the run has {config}."
        )
    n, units = trained.config.units, config.units
    if units < n:
        raise ConfigError(f"a model cannot be widened to fewer units. Received: {units}; it has {n}.")
    weights = {name: value.numpy() for name, value in trained.named_weights().items()}
    wide = initial_weights(config, seed)
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
