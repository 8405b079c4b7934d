"""Frozen model configurations: what a checkpoint's `config.json` holds."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from lbzoo.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class MLSTMConfig:
    """Shape of a multiplicative LSTM (Krause et al. 2016; Radford et al. 2017).

    Attributes:
        units: width of the hidden state `h` and the cell state `c`.
        vocab_size: number of token ids; 256 for bytes.
        embedding_dim: width of a token's embedding.
        weight_norm: True for the training form (a direction `v` and a gain `g` per output column of
            wx, wh, wmx, wmh), False for the folded form (one plain matrix each).
        output: whether the next-token output layer is part of the model.

    Raises:
        ConfigError: a size that is not a positive integer, or a flag that is not a bool.
    """

    units: int
    vocab_size: int = 256
    embedding_dim: int = 64
    weight_norm: bool = True
    output: bool = True

    def __post_init__(self) -> None:
        for name in ("units", "vocab_size", "embedding_dim"):
            _require_positive_integer(name, getattr(self, name))
        for name in ("weight_norm", "output"):
            _require_flag(name, getattr(self, name))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "MLSTMConfig":
        """Build from a mapping; an unknown or missing key raises ConfigError."""
        return _from_dict(cls, values)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for `config.json`."""
        return dataclasses.asdict(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor of a checkpoint by its name, in the order of `MLSTMLanguageModel.named_weights`."""
        n, e, v = self.units, self.embedding_dim, self.vocab_size
        shapes = {"embedding": (v, e), "wx": (e, 4 * n), "wh": (n, 4 * n), "wmx": (e, n), "wmh": (n, n), "b": (4 * n,)}
        if self.weight_norm:
            shapes.update(gx=(4 * n,), gh=(4 * n,), gmx=(n,), gmh=(n,))
        if self.output:
            shapes.update(out_w=(n, v), out_b=(v,))
        return shapes


# the architectures of config.json and of the manifest; neither chooses a class by an import path
CONFIGS = {"mlstm": MLSTMConfig}


def _require_positive_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a positive integer. Received: {name}={value!r}.")


def _require_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false. Received: {name}={value!r}.")


def _from_dict(cls, values: Mapping[str, Any]):
    if not isinstance(values, Mapping):
        raise ConfigError(f"a {cls.__name__} is made from a mapping. Received: {type(values).__name__}.")
    known = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(
            f"a {cls.__name__} has the fields {', '.join(known)}. Received: unknown {', '.join(map(str, unknown))}."
        )
    missing = [n for n, f in known.items() if f.default is dataclasses.MISSING and n not in values]
    if missing:
        raise ConfigError(
            f"a {cls.__name__} needs {', '.join(missing)}. Received: {', '.join(map(str, values)) or 'nothing'}."
        )
    return cls(**values)
