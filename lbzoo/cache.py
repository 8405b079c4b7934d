"""Where downloads lie on this machine, whether their bytes are the right ones, and where wrong ones are put."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lbzoo import files as disk

_TRUE = ("1", "on", "yes", "true")
_DEAD_AFTER = 600.0  # seconds; a download or a conversion at work writes every moment


@dataclasses.dataclass(frozen=True)
class Cache:
    """`hub`: the Hub client's cache folder (None: its own default). `ours`: converted releases and recorded hashes."""

    hub: str | None
    ours: Path

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.hub or str(self.ours)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """A file whose bytes are not the expected ones, in the words of the message."""

    expected: str
    received: str


def locate(cache: str | os.PathLike | None = None) -> Cache:
    """The cache: the argument, else LBZOO_CACHE, else the Hub's own (then ours is `lbzoo` in the HF_HOME folder)."""
    chosen = os.fspath(cache) if cache else os.environ.get("LBZOO_CACHE")
    if chosen:
        folder = Path(chosen).expanduser().absolute()
        return Cache(str(folder), folder / "lbzoo")
    from huggingface_hub import constants

    return Cache(None, Path(constants.HF_HOME) / "lbzoo")


def is_offline(offline: bool | None = None) -> bool:
    """The argument, else whether HF_HUB_OFFLINE or LBZOO_OFFLINE is set to 1, on, yes or true."""
    if offline is not None:
        return offline
    return any(os.environ.get(name, "").lower() in _TRUE for name in ("HF_HUB_OFFLINE", "LBZOO_OFFLINE"))


def check(path: Path, size: int | None = None, sha256: str | None = None, sha1: str | None = None) -> Mismatch | None:
    """Compare size, then SHA-256, then git's blob SHA-1, as far as they are known; None where all fit."""
    received = path.stat().st_size
    if size is not None and received != size:
        return Mismatch(f"{size} bytes", f"{received} bytes")
    if sha256 is not None:
        digest = disk.sha256_file(path)
        if digest != sha256:
            return Mismatch(f"sha256 {sha256}", f"sha256 {digest} ({received} bytes)")
    if sha1 is not None:
        digest = disk.git_blob_sha1(path)
        if digest != sha1:
            return Mismatch(f"git blob SHA-1 {sha1}", f"git blob SHA-1 {digest} ({received} bytes)")
    return None


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


def sweep(folder: Path, pattern: str) -> None:
    """Remove what a killed process left in `folder`: entries that match `pattern` and saw no write for ten minutes."""
    for entry in folder.glob(pattern):
        with contextlib.suppress(OSError):
            newest = max(p.stat().st_mtime for p in (entry, *entry.rglob("*")))
            if time.time() - newest > _DEAD_AFTER:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def read_record(cache: Cache, name: str) -> dict[str, Any]:
    """What `write_record` kept under a name; empty where there is nothing readable."""
    try:
        found = disk.parse_json((cache.ours / "recorded" / f"{name}.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(cache: Cache, name: str, values: dict[str, Any]) -> None:
    """Keep values for later runs, if the cache can be written."""
    folder = cache.ours / "recorded"
    aside = folder / f".{name}.{uuid.uuid4().hex[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(aside, folder / f"{name}.json")
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()


def records(cache: Cache) -> Iterator[dict[str, Any]]:
    """Every record of this cache, in the order of their names."""
    for path in sorted((cache.ours / "recorded").glob("*.json")):
        yield read_record(cache, path.stem)
