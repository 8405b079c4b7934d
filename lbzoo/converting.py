"""`lbzoo convert`: another library's folder to a checkpoint of ours, and with --export a checkpoint to its folder."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from lbzoo import checkpoint
from lbzoo.console import import_tensorflow, note
from lbzoo.errors import CheckpointError, UsageError
from lbzoo.folder import FolderInfo
from lbzoo.loading import checkpoint_folder, typed_model


@dataclasses.dataclass(frozen=True)
class Read:
    """A foreign folder in our terms."""

    config: Any
    text: str
    tensors: Mapping[str, Any]
    vocabulary: Any = None
    skipped: tuple[str, ...] = ()


def run_convert(args: argparse.Namespace) -> None:
    """Convert a folder and print where the result lies."""
    if (args.gelu or args.text) and (args.kind != "google-bert" or args.export):
        raise UsageError("--gelu and --text say what a folder of google-bert does not; no other needs them.")
    read, write = KINDS[args.kind]
    if args.kind == "google-bert":
        import_tensorflow()
    if args.export:
        info = checkpoint.verify(checkpoint_folder(typed_model(args.folder)))
        print(write(info, Path(os.path.expanduser(args.output))))
        return
    source = Path(os.path.expanduser(args.folder))
    found = read(source, args)
    card: dict[str, Any] = {"description": f"converted from the {args.kind} folder {source.resolve().name}"}
    if found.skipped:
        card["left_out"] = list(found.skipped)
    written = checkpoint.write(
        os.path.expanduser(args.output), found.config, found.text, found.tensors, card, vocabulary=found.vocabulary
    )
    if found.skipped:
        listed = ", ".join(found.skipped[:8]) + (", ..." if len(found.skipped) > 8 else "")
        note(f"what belongs to no part of the model was left out ({len(found.skipped)}): {listed}")
    print(written)


def _read_hf(folder: Path, args: argparse.Namespace) -> Read:
    from lbzoo.convert.hf_bert import inspect_folder

    found = inspect_folder(folder)
    return Read(found.config, found.text, dict(found.tensors()), found.vocabulary(), found.skipped)


def _write_hf(info: FolderInfo, folder: Path) -> Path:
    from lbzoo.convert.hf_bert import write_folder

    return write_folder(folder, *_bert(info))


def _read_google(folder: Path, args: argparse.Namespace) -> Read:
    from lbzoo.convert.google_bert import read_folder

    found = read_folder(folder, args.gelu, args.text)
    return Read(found.config, found.text, found.tensors, found.vocabulary, found.skipped)


def _write_google(info: FolderInfo, folder: Path) -> Path:
    from lbzoo.convert.google_bert import write_folder

    return write_folder(folder, *_bert(info))


def _read_openai(folder: Path, args: argparse.Namespace) -> Read:
    from lbzoo.convert.openai_mlstm import read_npy_folder

    config, tensors = read_npy_folder(folder)
    return Read(config, "openai", tensors)


def _write_openai(info: FolderInfo, folder: Path) -> Path:
    from lbzoo.convert.openai_mlstm import write_npy_folder

    _require(info, "mlstm")
    return write_npy_folder(_float32(info), folder)


def _bert(info: FolderInfo) -> tuple[Any, str, dict[str, Any], Any]:
    _require(info, "bert")
    return info.config, info.text, _float32(info), info.vocabulary()


def _float32(info: FolderInfo) -> dict[str, Any]:
    return {name: array.astype("float32", copy=False) for name, array in info.tensors()}


def _require(info: FolderInfo, architecture: str) -> None:
    if info.architecture != architecture:
        raise CheckpointError(f"this format holds a model of kind {architecture}. Received: {info.architecture}.")


KINDS: Mapping[str, tuple[Callable[..., Read], Callable[[FolderInfo, Path], Path]]] = {
    "hf-bert": (_read_hf, _write_hf),
    "google-bert": (_read_google, _write_google),
    "openai-mlstm": (_read_openai, _write_openai),
}
