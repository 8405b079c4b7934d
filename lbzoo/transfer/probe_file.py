"""A probe on disk: `probe.json` (names and options) and `probe.safetensors` (numbers); nothing executable."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors

from lbzoo.errors import CheckpointError, ConfigError, LbzooError
from lbzoo.files import replaced_file
from lbzoo.folder import PROBE, PROBE_WEIGHTS, read_json
from lbzoo.tensors import write_tensors
from lbzoo.transfer.probe import Probe

FORMAT = 1
_KEYS = ("format", "classes", "class_type", "features", "state", "pool", "tanh", "C", "meta")
_OPTIONAL = ("link",)  # written where it isn't the default, so that an older lbzoo still reads all the others
_TYPES = {"str": str, "int": int, "bool": bool, "float": float}


def save(probe: Probe, folder: str | os.PathLike) -> Path:
    """Write both files, each aside first; returns the folder.

    Raises:
        ConfigError: `probe.meta` holds something that JSON cannot.
        CheckpointError: the numbers could not be written, or read back differently.
        OSError: the folder cannot be written.
    """
    values = {
        "format": FORMAT,
        "classes": list(probe.classes),
        "class_type": type(probe.classes[0]).__name__ if probe.classes else "str",
        "features": probe.features,
        "state": probe.state,
        "pool": probe.pool,
        "tanh": probe.tanh,
        "C": probe.C,
        "meta": probe.meta,
    }
    if probe.link != "logistic":
        values["link"] = probe.link
    try:
        text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"probe.meta must hold JSON values with finite numbers: {error}.") from error
    tensors = {"coef": probe.coef, "intercept": probe.intercept}
    if probe.spread is not None:
        tensors["spread"] = probe.spread
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replaced_file(folder / PROBE_WEIGHTS) as aside:
        write_tensors(aside, tensors)
    with replaced_file(folder / PROBE) as aside:
        aside.write_bytes(text.encode("ascii"))
    return folder


def load(folder: str | os.PathLike) -> Probe:
    """Read and check both files; CheckpointError names the file and what is wrong with it."""
    folder = Path(folder)
    path = folder / PROBE
    values = read_json(path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold one JSON object. Received: {type(values).__name__}.")
    unknown, missing = sorted(set(values) - {*_KEYS, *_OPTIONAL}), [key for key in _KEYS if key not in values]
    if unknown or missing:
        wrong = f"unknown keys {', '.join(map(repr, unknown))}" if unknown else f"no {', '.join(map(repr, missing))}"
        raise CheckpointError(f"{path} has {wrong}. Known: {', '.join((*_KEYS, *_OPTIONAL))}.")
    if type(values["format"]) is not int or values["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {values['format']!r}; this lbzoo reads {FORMAT}. Was it written by a newer one?"
        )
    kind = _TYPES.get(values["class_type"]) if isinstance(values["class_type"], str) else None
    classes = values["classes"]
    if kind is None or not isinstance(classes, list) or any(type(name) is not kind for name in classes):
        raise CheckpointError(
            f"{path}: classes must be a list of {values['class_type']!r}, one of {', '.join(_TYPES)}. "
            f"Received: {classes!r}."
        )
    tensors = _tensors(folder / PROBE_WEIGHTS)
    options = {name: values[name] for name in ("state", "pool", "tanh", "C", "meta", *_OPTIONAL) if name in values}
    try:
        probe = Probe(classes=classes, **tensors, **options)
    except LbzooError as error:
        raise CheckpointError(f"the probe in {folder} is not sound: {error}") from error
    if type(values["features"]) is not int or probe.features != values["features"]:
        raise CheckpointError(f"{path} states {values['features']!r} features; {PROBE_WEIGHTS} has {probe.features}.")
    return probe


def _tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        tensors = parse_tensors(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read. Received: {error.strerror or error}.") from None
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}.") from error
    if not {"coef", "intercept"} <= set(tensors) <= {"coef", "intercept", "spread"}:
        raise CheckpointError(
            f"{path} must hold coef and intercept, and may hold spread. "
            f"Received: {', '.join(sorted(tensors)) or 'nothing'}."
        )
    wanted = {"coef": 2, "intercept": 1, "spread": 1}
    for name, array in tensors.items():
        if array.dtype != np.float32 or array.ndim != wanted[name]:
            raise CheckpointError(
                f"{path}: {name} must be float32 with {wanted[name]} dimensions. "
                f"Received: {array.dtype}, shape {list(array.shape)}."
            )
    return tensors
