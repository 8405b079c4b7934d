"""One function per run, each returning a full frozen configuration. A variant calls another and replaces fields."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The stream of bytes: see training/data.py."""

    rows: int
    window: int
    shard_bytes: int = 1 << 16
    reset: str = "document"


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Adam with a linear schedule and a norm limit: see lbzoo/optimizers."""

    learning_rate: float
    warmup: int = 0
    final_rate: float = 0.0
    clip_norm: float = 1.0
    beta_2: float = 0.999


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run computes.

    Attributes:
        memory: where above 0, half the units start with gate biases for memories of 2 to `memory` bytes.
        sentiment_weight: of the second loss, the sentiment of the text so far at every byte; 0 leaves it out.
        precision: Keras policy name.
        init_from: checkpoint folder whose weights start the run; "" for random ones.
        save_every, evaluate_every: in steps.
    """

    model: MLSTMConfig
    data: DataConfig
    optimizer: OptimizerConfig
    steps: int
    seed: int = 1
    memory: int = 0
    sentiment_weight: float = 0.0
    precision: str = "float32"
    text: str = "reviews"
    init_from: str = ""
    save_every: int = 500
    evaluate_every: int = 1500

    def to_dict(self) -> dict[str, Any]:
        """As written beside a run's results and compared on resume."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunConfig":
        """The inverse of `to_dict`."""
        parts = {"model": MLSTMConfig, "data": DataConfig, "optimizer": OptimizerConfig}
        return cls(**{k: parts[k](**v) if k in parts else v for k, v in values.items()})


def tiny() -> RunConfig:
    """Seconds on a laptop: for tests and for a first look."""
    return RunConfig(
        model=MLSTMConfig(units=32, embedding_dim=16),
        data=DataConfig(rows=8, window=32, shard_bytes=1 << 12),
        optimizer=OptimizerConfig(learning_rate=5e-3, warmup=5),
        steps=60,
        sentiment_weight=1.0,
        save_every=10,
        evaluate_every=30,
    )


def reviews_512() -> RunConfig:
    """mlstm-512-reviews: two losses, bfloat16 products, one pass over the prepared documents."""
    return RunConfig(
        model=MLSTMConfig(units=512),
        data=DataConfig(rows=128, window=64),
        optimizer=OptimizerConfig(learning_rate=2.5e-3, warmup=200),
        steps=7_200,
        memory=200,
        sentiment_weight=4.0,
        precision="mixed_bfloat16",
    )


RECIPES: Mapping[str, Callable[[], RunConfig]] = {"tiny": tiny, "reviews-512": reviews_512}


def recipe(name: str) -> RunConfig:
    """The configuration of that name; an unknown one raises ConfigError."""
    if name not in RECIPES:
        raise ConfigError(f"there is no such recipe. Received: {name!r}. Known: {', '.join(RECIPES)}.")
    return RECIPES[name]()


def with_settings(config: RunConfig, settings: Mapping[str, str]) -> RunConfig:
    """`config` with fields replaced, as `--set optimizer.learning_rate=1e-3` gives them.

    Raises:
        ConfigError: an unknown field, or a value that is not of the field's type.
    """
    for path, text in settings.items():
        config = _replace(config, path.split("."), path, text)
    return config


def _replace(config: Any, parts: list[str], path: str, text: str) -> Any:
    known = [field.name for field in dataclasses.fields(config)]
    if parts[0] not in known:
        raise ConfigError(f"there is no such setting. Received: {path}={text}. Known here: {', '.join(known)}.")
    old = getattr(config, parts[0])
    if dataclasses.is_dataclass(old):
        if len(parts) == 1:
            raise ConfigError(f"{path} is a group of settings. Received: {path}={text}. Set one of its fields.")
        return dataclasses.replace(config, **{parts[0]: _replace(old, parts[1:], path, text)})
    if len(parts) > 1:
        raise ConfigError(f"{parts[0]} has no fields of its own. Received: {path}={text}.")
    return dataclasses.replace(config, **{parts[0]: _value(type(old), path, text)})


def _value(kind: type, path: str, text: str) -> Any:
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    raise ConfigError(f"{path} is a {kind.__name__}. Received: {text!r}.")
