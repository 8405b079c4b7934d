"""Reading a checkpoint folder without building a model: `config.json`, and whether every byte is the right one.

A folder of a Hugging Face BERT is read as it is (`convert.hf_bert`): it counts as a checkpoint that states no hashes.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from lbzoo.convert.hf_config import is_bert
from lbzoo.errors import CheckpointError, ConfigError
from lbzoo.fields import Fields
from lbzoo.files import DTYPES, SHA256, brief, mismatch, parse_json, sha256_file, unsafe_path
from lbzoo.manifest import MAX_FILE_SIZE, FileSpec
from lbzoo.models.config import CONFIGS, TEXTS, Config

if TYPE_CHECKING:
    import numpy as np

    from lbzoo.convert.hf_bert import HfBert
    from lbzoo.text.vocabulary import Vocabulary

FORMAT = 1
CONFIG, WEIGHTS, CARD, VOCABULARY = "config.json", "model.safetensors", "card.json", "vocab.txt"
PROBE, PROBE_WEIGHTS = "probe.json", "probe.safetensors"
CLASSIFIER = "classifier.json"
MAX_JSON = 1 << 20
T = TypeVar("T")

_PATIENCE = 10  # seconds of reading a folder that is replaced all the time


@dataclasses.dataclass(frozen=True)
class FolderInfo:
    """What `config.json` of a checkpoint folder says, validated; `files` are all the others."""

    folder: Path
    architecture: str
    config: Config
    text: str
    dtype: str
    files: tuple[FileSpec, ...]
    foreign: HfBert | None = None  # a folder of Hugging Face, and how it is read

    def check_tensors(self) -> None:
        """Hold names, shapes and dtype of the weights against `config`; CheckpointError where one does not fit."""
        if self.foreign is None:  # another's are checked when it is inspected
            from lbzoo.tensors import check_tensors

            check_tensors(self.folder / WEIGHTS, self.config.shapes(), self.dtype)

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """(name, array) one after the other, in the order of `config.shapes()`, strictly those."""
        if self.foreign is not None:
            return self.foreign.tensors()
        from lbzoo.tensors import read_tensors

        return read_tensors(self.folder / WEIGHTS, self.config.shapes(), self.dtype)

    def vocabulary(self) -> Vocabulary | None:
        """The word pieces, where the folder has some."""
        if self.foreign is not None:
            return self.foreign.vocabulary()
        if not self.has(VOCABULARY):
            return None
        from lbzoo.text.vocabulary import read_vocabulary

        return read_vocabulary(self.folder / VOCABULARY)

    def has(self, path: str) -> bool:
        """Whether `config.json` lists a file of this path."""
        return any(file.path == path for file in self.files)


@dataclasses.dataclass(frozen=True)
class VerifiedFolder(FolderInfo):
    """A folder whose files `verify` has just checked (but those it was told to skip): loaders do not check it again."""


def verify(
    folder: str | os.PathLike,
    expected_files: Iterable[FileSpec] = (),
    skip: Iterable[str] = (),
    checked: Iterable[FileSpec] = (),
) -> VerifiedFolder:
    """Check every file of a checkpoint folder: size, then SHA-256, then names, shapes and dtype of the tensors.

    Args:
        folder: a checkpoint folder.
        expected_files: what a manifest states, `config.json` included; checked besides what `config.json` states.
        skip: files that are not going to be read.
        checked: sizes and hashes that the caller has just found files to have; they are not read once more.

    Raises:
        CheckpointError: no checkpoint, a malformed config, or a file that is missing or changed: names it, expected
            and received.
    """
    skip, known = set(skip), set(checked)
    info = read_folder(folder)
    for spec in (*expected_files, *info.files):
        if spec.path not in skip and spec not in known:
            _require_same(info.folder / spec.path, spec)
            known.add(spec)
    if WEIGHTS not in skip:
        info.check_tensors()
    return VerifiedFolder(**{field.name: getattr(info, field.name) for field in dataclasses.fields(info)})


def read_folder(folder: str | os.PathLike) -> FolderInfo:
    """Parse and validate `config.json`; reads no other file, but of a Hugging Face BERT those that it goes on in.

    Raises:
        CheckpointError: no folder, no `config.json`, or one that is malformed, huge, of another format version or
            architecture, or with unknown fields.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"there is no checkpoint folder here. Received: {str(folder)!r}.{_left_aside(folder)}")
    path = folder / CONFIG
    values = read_json(path)
    if is_bert(values):
        from lbzoo.convert.hf_bert import inspect_folder

        found = inspect_folder(folder)
        return FolderInfo(folder, "bert", found.config, found.text, found.dtype, (), found)
    if isinstance(values, dict) and "format" not in values:
        kind = brief(values.get("model_type") or values.get("architectures") or sorted(values)[:6])
        raise CheckpointError(f"{path} is not of an lbzoo checkpoint: it has no format. Received: {kind}.")
    fields = Fields(values, str(path), CheckpointError)
    number = fields.take("format")
    if type(number) is not int or number != FORMAT:
        raise CheckpointError(
            f"{path}: format must be {FORMAT}. Received: {brief(number)}. A later one needs a newer lbzoo."
        )
    architecture = fields.choice("architecture", CONFIGS)
    try:
        config = CONFIGS[architecture].from_dict(fields.take("config"))
    except ConfigError as error:
        raise CheckpointError(f"{path}: config: {error}") from None
    info = FolderInfo(
        folder=folder,
        architecture=architecture,
        config=config,
        text=fields.choice("text", TEXTS[architecture]),
        dtype=fields.choice("dtype", DTYPES),
        files=_files(fields.fields("files")),
    )
    fields.finish()
    if not info.has(WEIGHTS):
        raise CheckpointError(f"{path}: files must name {WEIGHTS}. Received: {brief([f.path for f in info.files])}.")
    return info


def measure(path: Path) -> FileSpec:
    """Size and SHA-256 of a file, as a manifest or `config.json` states them."""
    return FileSpec(path.name, path.stat().st_size, sha256_file(path))


def manifest_files(folder: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file of a verified checkpoint folder: an entry's `files` in the manifest."""
    info = verify(folder)
    specs = [measure(info.folder / CONFIG), *info.files]
    return {spec.path: {"size": spec.size, "sha256": spec.sha256} for spec in specs}


def _files(fields: Fields) -> tuple[FileSpec, ...]:
    found = []
    for path in fields.values:
        reason = "must not name itself" if path == CONFIG else unsafe_path(path)
        if reason:
            raise fields.fault(fields.path(path), reason, path)
        inner = fields.fields(path)
        size = inner.integer("size", 1, MAX_FILE_SIZE)
        found.append(FileSpec(path, size, inner.digest("sha256", SHA256)))
        inner.finish()
    return tuple(found)


def _require_same(path: Path, spec: FileSpec) -> None:
    advice = "Get the checkpoint again, or restore the file."
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError(f"{path} must be a file. Received: a folder or a device. {advice}")
        wrong = mismatch(path, spec.size, spec.sha256)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read. Received: {error.strerror or error}. {advice}") from None
    if wrong:
        raise CheckpointError(f"{path} has changed. Expected: {wrong.expected}. Received: {wrong.received}. {advice}")


def read_json(path: Path) -> Any:
    """The values of a JSON file of at most `MAX_JSON` bytes, read strictly; CheckpointError where it is none."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_JSON + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read. Received: {error.strerror or error}.") from None
    if len(data) > MAX_JSON:
        raise CheckpointError(f"{path} must be at most {MAX_JSON} bytes. Received: more.")
    try:
        return parse_json(data)
    except ValueError as error:
        raise CheckpointError(f"{path} cannot be parsed: {error}. Received: {len(data)} bytes.") from None


def while_still(folder: Path, read: Callable[[], T]) -> T:
    """`read()`; once more where another process replaced the folder meanwhile, so that files never mix.

    Raises:
        CheckpointError: what `read` raised on a folder that stayed, or one that kept being replaced.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        before = _identity(folder)
        try:
            value = read()
        except CheckpointError:
            if _identity(folder) == before or time.monotonic() > end:
                raise
        else:
            if _identity(folder) == before:
                return value
            if time.monotonic() > end:
                raise CheckpointError(
                    f"{folder} was replaced again and again while it was read. Received: other files than a moment ago "
                    f"for {_PATIENCE} s. Is something saving there all the time?"
                )


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _left_aside(folder: Path) -> str:
    """Where the system cannot swap folders in one step, a kill may leave the only copy beside its place."""
    left = sorted(folder.parent.glob(f".{glob.escape(folder.name)}.old-*/folder")) if folder.name else []
    return f" A save was interrupted here; the copy before it is {left[0]}." if left else ""
