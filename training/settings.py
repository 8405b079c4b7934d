"""A configuration chosen by name from a table of recipes, and single fields of it replaced: --recipe and --set."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Callable, Mapping, TypeVar

from lbzoo.errors import ConfigError

Config = TypeVar("Config")


def choose(recipes: Mapping[str, Callable[[], Config]], name: str) -> Config:
    """The configuration of that name; an unknown one raises ConfigError."""
    if name not in recipes:
        raise ConfigError(f"there is no such recipe. Received: {name!r}. Known: {', '.join(recipes)}.")
    return recipes[name]()


def with_settings(config: Config, settings: Mapping[str, str]) -> Config:
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
    kind = typing.get_type_hints(type(config))[parts[0]]
    return dataclasses.replace(config, **{parts[0]: _value(kind, path, text)})


def _value(kind: type, path: str, text: str) -> Any:
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    raise ConfigError(f"{path} is a {kind.__name__}. Received: {text!r}.")
