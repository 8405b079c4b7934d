"""Bytes on disk: hashes, strict JSON, safe file names, and files and folders replaced whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import glob
import hashlib
import json
import os
import re
import reprlib
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 1 << 22
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
SHA1 = re.compile(r"[0-9a-f]{40}\Z")
CHECKPOINT_SUFFIXES = (".safetensors", ".json", ".txt", ".model")
DTYPES = {"float32": "F32", "float16": "F16"}  # of weights on disk; the second is safetensors' word
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|\Z)", re.IGNORECASE)


def brief(value: Any) -> str:
    """`repr` cut to one short line, for error messages."""
    return _SHORT.repr(value)


def sha256_file(path: str | os.PathLike) -> str:
    """SHA-256 of a file, 64 lower-case hex digits; OSError where it cannot be read."""
    return _digest(hashlib.sha256(), path)


def git_blob_sha1(path: str | os.PathLike) -> str:
    """What `git hash-object` prints: SHA-1 over `blob <length>` NUL and the bytes, so that it covers the length."""
    return _digest(hashlib.sha1(b"blob %d\0" % os.path.getsize(path)), path)


def _digest(digest, path: str | os.PathLike) -> str:
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """A file whose bytes are not the expected ones, in the words of the message."""

    expected: str
    received: str


def mismatch(
    path: Path, size: int | None = None, sha256: str | None = None, sha1: str | None = None
) -> Mismatch | None:
    """Compare size, then SHA-256, then git's blob SHA-1, as far as they are known; None where all fit.

    Raises OSError where the file cannot be read.
    """
    received = path.stat().st_size
    if size is not None and received != size:
        return Mismatch(f"{size} bytes", f"{received} bytes")
    if sha256 is not None:
        digest = sha256_file(path)
        if digest != sha256:
            return Mismatch(f"SHA-256 {sha256}", f"SHA-256 {digest} ({received} bytes)")
    if sha1 is not None:
        digest = git_blob_sha1(path)
        if digest != sha1:
            return Mismatch(f"git blob SHA-1 {sha1}", f"git blob SHA-1 {digest} ({received} bytes)")
    return None


def unsafe_path(path: Any, suffixes: tuple[str, ...] = CHECKPOINT_SUFFIXES) -> str | None:
    """Why `path` may not name a file of a checkpoint (a sentence's end), or None where it may.

    A safe path is relative and POSIX, made of ASCII letters, digits, `_`, `-` and `.`, and ends in a known suffix.
    """
    if not isinstance(path, str) or not path:
        return "must be a non-empty string"
    if len(path) > 200:
        return "must be at most 200 characters long"
    for segment in path.split("/"):
        if not _SEGMENT.match(segment) or segment.endswith(".") or _DEVICES.match(segment):
            return "must be a relative path of plain names (letters, digits, _ - .) joined by /, without '..'"
    if not path.endswith(suffixes):
        return f"must end in one of {' '.join(suffixes)}"
    return None


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 JSON as RFC 8259 has it; ValueError says what is wrong.

    Stricter than `json.loads`: no byte-order mark, no NaN or Infinity, no repeated keys, no endless nesting.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("it starts with a byte-order mark; save it as UTF-8 without one")
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {brief(key)} appears twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {brief(text)} is too large")
    return value


@contextlib.contextmanager
def replaced_file(target: Path) -> Iterator[Path]:
    """Give a path beside `target`; the file written there takes `target`'s place when the block ends well.

    Raises OSError as the file system does; nothing is left beside `target` then.
    """
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
    try:
        yield aside
        os.replace(aside, target)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


@contextlib.contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Give a new folder beside `target`; when the block ends well it takes `target`'s place, else it is removed.

    Until then an existing `target` stays as it was. Two processes may do this at once: the last one wins and each
    reader sees one whole folder. Raises OSError as the file system does.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent, f".{glob.escape(target.name)}.saving-*", 3600)
    aside = _beside(target, "saving")
    try:
        yield aside
        for path in (*aside.rglob("*"), aside):
            _sync(path)
        _take_place(aside, target)
        _sync(target.parent)
    finally:  # after a swap `aside` is what was there before
        shutil.rmtree(aside, ignore_errors=True)


def sweep(folder: Path, pattern: str, seconds: float) -> None:
    """Remove what a killed process left in `folder`: entries that match `pattern` and saw no write for so long."""
    for left in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - max(path.stat().st_mtime for path in (left, *left.rglob("*"))) > seconds:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _beside(target: Path, word: str) -> Path:
    folder = target.with_name(f".{target.name}.{word}-{uuid.uuid4().hex[:12]}")
    folder.mkdir()
    return folder


def _take_place(aside: Path, target: Path) -> None:
    for _ in range(100):
        try:
            return os.rename(aside, target)  # where there is nothing yet, or an empty folder
        except OSError:
            if not target.is_dir():
                raise
        if _swap(aside, target) or _swap_in_two_steps(aside, target):
            return
    raise OSError(f"{target} could not be replaced: other processes keep writing it")


def _swap_in_two_steps(aside: Path, target: Path) -> bool:
    """Move the old folder away, the new one in; False where another process came between."""
    old = _beside(target, "old")
    try:
        os.rename(target, old / "folder")
    except FileNotFoundError:
        old.rmdir()
        return False
    try:
        os.rename(aside, target)
        placed = True
    except OSError:
        placed = False
        if not target.exists():
            os.rename(old / "folder", target)
    shutil.rmtree(old, ignore_errors=True)
    return placed


def _swap(first: Path, second: Path) -> bool:
    """Exchange two folders in one step where the system can (Linux, macOS), so that no moment has neither."""
    a, b = os.fsencode(first), os.fsencode(second)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return libc.renamex_np(a, b, 2) == 0
        return libc.renameat2(-100, a, -100, b, 2) == 0
    except (AttributeError, OSError, TypeError):
        return False


def _sync(path: Path) -> None:
    """Force to disk. A folder's entry is forced where the platform allows it; a file that cannot be is an OSError."""
    if path.is_dir():
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    else:
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
