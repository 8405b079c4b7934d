"""Where downloads lie on this machine, where wrong bytes are put, and what is recorded about repositories."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lbzoo.files import parse_json, replaced_file

_TRUE = ("1", "on", "yes", "true")


@dataclasses.dataclass(frozen=True)
class Cache:
    """`hub`: the folder of the Hub's client. `ours`: converted releases and recorded hashes."""

    hub: str
    ours: Path


def locate(cache: str | os.PathLike | None = None) -> Cache:
    """The cache: the argument, else LBZOO_CACHE, else the Hub's own (then ours is `lbzoo` in the HF_HOME folder)."""
    chosen = os.fspath(cache) if cache else os.environ.get("LBZOO_CACHE")
    if chosen:
        folder = Path(os.path.expanduser(chosen)).absolute()
        return Cache(str(folder), folder / "lbzoo")
    from huggingface_hub import constants

    return Cache(str(constants.HF_HUB_CACHE), Path(constants.HF_HOME) / "lbzoo")


def is_offline(offline: bool | None = None) -> bool:
    """The argument, else whether HF_HUB_OFFLINE or LBZOO_OFFLINE is set to 1, on, yes or true."""
    if offline is not None:
        return offline
    return any(os.environ.get(name, "").lower() in _TRUE for name in ("HF_HUB_OFFLINE", "LBZOO_OFFLINE"))


def quarantine(path: Path) -> str:
    """Rename a file or folder with wrong bytes to `<name>.corrupt`, replacing an older one; say where it went.

    A link of the Hub's cache is removed and the blob behind it renamed.
    """
    try:
        bad = path
        if path.is_symlink():
            bad = Path(os.path.normpath(path.parent / os.readlink(path)))
            path.unlink()
        aside = bad.with_name(bad.name + ".corrupt")
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        os.replace(bad, aside)
        return f"The wrong bytes were moved to {aside}."
    except FileNotFoundError:  # another process was faster
        return "The wrong bytes were moved aside."
    except OSError as error:
        return f"The wrong bytes could not be moved aside ({error.strerror}): {path}."


def free_bytes(folder: Path) -> int | None:
    """Room on the disk of a folder that may not exist yet, or None where it cannot be known."""
    for place in (folder, *folder.parents):
        if place.is_dir():
            with contextlib.suppress(OSError):
                return shutil.disk_usage(place).free
            return None
    return None


def read_record(cache: Cache, name: str) -> dict[str, Any]:
    """What `write_record` kept under a name; empty where there is nothing readable."""
    try:
        found = parse_json((cache.ours / "recorded" / f"{name}.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(cache: Cache, name: str, values: dict[str, Any]) -> None:
    """Keep values for later runs, if the cache can be written."""
    folder = cache.ours / "recorded"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with replaced_file(folder / f"{name}.json") as aside:
            aside.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def records(cache: Cache) -> Iterator[dict[str, Any]]:
    """Every record of this cache, in the order of their names."""
    for path in sorted((cache.ours / "recorded").glob("*.json")):
        yield read_record(cache, path.stem)
