"""The folder of texts that training reads, memory-mapped, and how it comes into being: whole or not at all.

    text.bin     every document's bytes, one after another
    offsets.npy  int64: where documents begin, and the end
    index.json   counts, preprocessing, hashes; "shards", where the text is cut into shards: begin, bytes, documents and
                 sha256 of each
    target.bin   where training.prepare_sentiment made it: a float16 for each byte of the text

What `training.prepare_reviews` writes is a folder of such folders, train, valid and test, under one index.json.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Mapping, Optional

import numpy as np

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.files import replaced_folder

try:
    import fcntl
except ImportError:  # Windows: what a killed run left goes after an hour, see lbzoo.files.replaced_folder
    fcntl = None

INDEX = "index.json"
_LOCK = "lock"
_BACK = "The last good checkpoint is intact; put the file back, then start again."


@dataclasses.dataclass(frozen=True)
class Shards:
    """A folder of texts.

    Attributes:
        folder, index: where it is and what index.json holds.
        text: uint8 [bytes], memory-mapped.
        offsets: int64 [documents + 1], memory-mapped.
        target: float16 [bytes], memory-mapped, or None.
        begins: int64 [shards], where each shard that holds something begins; None where the text is not cut.
    """

    folder: Path
    index: Mapping[str, Any]
    text: np.ndarray
    offsets: np.ndarray
    target: Optional[np.ndarray]
    begins: Optional[np.ndarray]

    def check(self) -> None:
        """Whether the mapped files are there still, as long as they were: reading on past an end kills the process.

        Raises:
            TrainingError: one has gone, or was cut.
        """
        for name, mapped in (("text.bin", self.text), ("target.bin", self.target)):
            if mapped is None:
                continue
            try:
                size = os.stat(self.folder / name).st_size
            except OSError as error:
                raise TrainingError(f"{self.folder / name} has gone: {error.strerror}. {_BACK}") from error
            if size < mapped.nbytes:
                raise TrainingError(f"{self.folder / name} was cut to {size} of {mapped.nbytes} bytes. {_BACK}")

    def documents(self) -> Iterator[bytes]:
        """Each document's bytes, in order."""
        for begin, end in zip(self.offsets[:-1], self.offsets[1:]):
            yield self.text[begin:end].tobytes()


def open_shards(folder: Path, split: str = "train") -> Shards:
    """Map a split of a folder of shards.

    Raises:
        TrainingError: the folder is incomplete or damaged, or does not hold that split.
    """
    folder = Path(folder)
    try:
        index = json.loads((folder / INDEX).read_text())
        folder = _split_folder(folder, index, split)
        index = json.loads((folder / INDEX).read_text())
        size = index["bytes"]
        text = _mapped(folder / "text.bin", np.uint8)
        offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        begins = [shard["begin"] for shard in index["shards"] if shard["bytes"]] if "shards" in index else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{folder} is no folder of shards: {error}. Make one: python -m training.prepare_reviews."
        ) from error
    if not len(text) == offsets[-1] == size:
        raise TrainingError(
            f"{folder} is damaged: index.json says {size} bytes. Received: {len(text)} in text.bin. Prepare it again."
        )
    target = folder / "target.bin"
    has_target = target.exists() and target.stat().st_size > 0
    return Shards(
        folder,
        index,
        text,
        offsets,
        _mapped(target, np.float16) if has_target else None,
        None if begins is None else np.asarray(begins, np.int64),
    )


def _split_folder(folder: Path, index: Mapping[str, Any], split: str) -> Path:
    if "splits" not in index:
        if split == "train":
            return folder
        raise TrainingError(f"{folder} holds text to train on only, no split {split!r}.")
    if split not in index["splits"]:
        raise TrainingError(f"{folder} has the splits {', '.join(index['splits'])}. Received: {split!r}.")
    return folder / split


def _mapped(path: Path, dtype: Any) -> np.ndarray:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)  # nothing cannot be mapped


def write_index(folder: Path, index: Mapping[str, Any]) -> None:
    """Write index.json."""
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n")


@contextlib.contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder beside `output` that takes its place when the block ends well; what killed runs left is removed first.

    Raises:
        ConfigError: there is something at `output` that is no folder of shards.
    """
    output = Path(output)
    if output.exists() and not (output / INDEX).is_file() and not (output.is_dir() and not any(output.iterdir())):
        raise ConfigError(
            f"{output} is there already and is no folder of shards: it would be replaced. Choose another --output."
        )
    output = output.absolute()
    _remove_dead(output)
    with replaced_folder(output) as folder:
        if fcntl is None:
            yield folder
            return
        with open(folder / _LOCK, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
            (folder / _LOCK).unlink()


def _remove_dead(output: Path) -> None:
    """Remove folders beside `output` whose writer's lock is free: it was killed."""
    for left in output.parent.glob(f".{glob.escape(output.name)}.saving-*") if fcntl is not None else ():
        with contextlib.suppress(OSError), open(left / _LOCK, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
