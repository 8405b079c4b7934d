"""`lbzoo doctor`: what is installed, where checkpoints are kept, what the network settings say."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import lbzoo
from lbzoo.console import import_tensorflow, one_line
from lbzoo.errors import LbzooError

# name on the index, module, whether lbzoo cannot do its work without it
PACKAGES = (
    ("tensorflow", "tensorflow", True),
    ("keras", "keras", True),
    ("numpy", "numpy", True),
    ("scikit-learn", "sklearn", True),
    ("safetensors", "safetensors", True),
    ("huggingface-hub", "huggingface_hub", True),
    ("tqdm", "tqdm", True),
    ("tensorflow-addons", "tensorflow_addons", False),
    ("tensorflow-text", "tensorflow_text", False),
    ("setuptools", "setuptools", False),
)
WANTED = {"tensorflow": "2.15.", "keras": "2.15.", "numpy": "1."}
VARIABLES = (
    *("LBZOO_CACHE", "LBZOO_OFFLINE", "LBZOO_TRIES", "LBZOO_TIMEOUT", "LBZOO_RETRY_WAIT", "LBZOO_RETRY_LIMIT"),
    *("LBZOO_DEBUG", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TF_CPP_MIN_LOG_LEVEL"),
)


def run_doctor(args: argparse.Namespace) -> int:
    """Print the findings; 1 if something that lbzoo needs is missing."""
    found = examine(args.cache, args.full)
    if args.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for key, value in found.items():
            if isinstance(value, dict):
                for name, detail in value.items():
                    print(f"{key:<14}{name:<22}{one_line(detail)}")
            else:
                for each in value if isinstance(value, list) else [value]:
                    print(f"{key:<14}{one_line(each)}")
    return 1 if found["problems"] else 0


def examine(cache: str | os.PathLike | None = None, full: bool = False) -> dict[str, Any]:
    """The findings as JSON values; `problems` is a list of sentences, empty where all is well.

    Args:
        cache: as for `lbzoo.load`.
        full: import TensorFlow, for its devices (seconds).
    """
    problems: list[str] = []
    found: dict[str, Any] = {
        "lbzoo": lbzoo.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.platform()}, {os.cpu_count()} cores",
        "package": {name: _package(name, module, needed, problems) for name, module, needed in PACKAGES},
        "manifest": _manifest(problems),
        "cache": _cache(cache),
        "network": _network(),
        "variable": {name: _value(name) for name in VARIABLES if name in os.environ},
        "devices": _devices(problems) if full else "not looked for (--full imports TensorFlow)",
    }
    if not (3, 9) <= sys.version_info[:2] < (3, 12):
        problems.append(f"lbzoo needs Python 3.9, 3.10 or 3.11. Received: {platform.python_version()}.")
    return {**found, "problems": problems}


def _package(name: str, module: str, needed: bool, problems: list[str]) -> str:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = "installed, version unknown" if importlib.util.find_spec(module) else "missing"
    if version == "missing" and needed:
        problems.append(f"{name} is missing: install lbzoo again, or `pip install {name}`.")
    wanted = WANTED.get(name, "")
    if version != "missing" and version[:1].isdigit() and not version.startswith(wanted):
        problems.append(f"{name} {wanted}x is needed. Received: {version}. Install lbzoo in an environment of its own.")
    return version


def _manifest(problems: list[str]) -> str:
    from lbzoo import manifest, registry

    try:
        return f"schema {manifest.SCHEMA}, {len(registry.entries())} checkpoints, {registry.manifest_path()}"
    except LbzooError as error:
        problems.append(str(error))
        return "cannot be read"


def _cache(chosen: str | os.PathLike | None) -> dict[str, str]:
    from lbzoo import cache as places

    try:
        where = places.locate(chosen)
    except ImportError:
        return {"hub": "not known: huggingface-hub is missing"}
    folders = {"hub": Path(where.hub), "ours": where.ours}
    return {name: f"{folder} ({_writable(folder)})" for name, folder in folders.items()}


def _value(name: str) -> str:
    """What an environment variable holds, without a password: people paste these lines into reports."""
    from lbzoo.hub_client import shown

    return shown(os.environ[name]) if name == "HF_ENDPOINT" else os.environ[name]


def _writable(folder: Path) -> str:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    state = "" if there == folder else "not made yet, "
    try:
        with tempfile.TemporaryFile(dir=there):
            return f"{state}can be written"
    except OSError as error:
        return f"{state}cannot be written: {error.strerror}; what is in it can be used"


def _network() -> str:
    from lbzoo import cache as places

    return "switched off by LBZOO_OFFLINE or HF_HUB_OFFLINE" if places.is_offline() else "used when a download needs it"


def _devices(problems: list[str]) -> list[str]:
    try:
        import_tensorflow()
        import tensorflow as tf
    except Exception as error:  # whatever keeps it from starting is the finding
        problems.append(f"TensorFlow cannot be imported: {type(error).__name__}: {error}")
        return ["none"]
    return [device.name for device in tf.config.list_physical_devices()]
