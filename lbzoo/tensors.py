"""Named arrays in a safetensors file: numbers only, written from contiguous memory, read back strictly."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from lbzoo.errors import CheckpointError
from lbzoo.files import DTYPES


def write_tensors(
    path: Path, arrays: Mapping[str, np.ndarray], dtype: str = "float32", metadata: Mapping[str, str] | None = None
) -> None:
    """Write `arrays` in `dtype`, read the file back and compare every number.

    Args:
        path: the file; its folder exists.
        arrays: name -> array of any float dtype, layout and byte order.
        dtype: "float32" or "float16" on disk.
        metadata: of the file's header, which other libraries look at.

    Raises:
        CheckpointError: a value that is not finite or that `dtype` cannot hold, a full disk, or a file that reads back
            differently; names the tensor.
    """
    if dtype not in DTYPES:
        raise CheckpointError(f"weights are written as {' or '.join(DTYPES)}. Received: dtype={dtype!r}.")
    # safetensors 0.8.0 writes the wrong numbers, without a word, for arrays that are not contiguous
    with np.errstate(over="ignore"):
        ready = {name: np.array(array, dtype, order="C") for name, array in arrays.items()}
    for name, array in ready.items():
        if not np.isfinite(array).all():
            raise CheckpointError(
                f"tensor {name!r} cannot be saved as {dtype}. Received: values that are not finite"
                + (" or beyond 65504; save as float32." if dtype == "float16" else ".")
            )
    try:
        path.write_bytes(
            safetensors.numpy.save(ready, metadata)
        )  # save_file would keep the file from other users of the machine
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} could not be written. Received: {error}.") from None
    shapes = {name: array.shape for name, array in ready.items()}
    for name, back in read_tensors(path, shapes, dtype):
        if back.tobytes() != ready[name].tobytes():
            raise CheckpointError(f"{path}: tensor {name!r} read back differs from what was written. Try another disk.")


def check_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> None:
    """Hold the header of a file against names, shapes and dtype; reads no numbers.

    Raises:
        CheckpointError: not a safetensors file, or a missing, unexpected, misshapen or mistyped tensor.
    """
    with open_tensors(path) as file:
        _check(file, path, shapes, dtype)


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """`check_tensors`, then (name, array) one after the other in the order of `shapes`: memory for one tensor."""
    with open_tensors(path) as file:
        _check(file, path, shapes, dtype)
        for name in shapes:
            yield name, file.get_tensor(name)


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[safetensors.safe_open]:
    """An open file whose header is sound; CheckpointError where it is none."""
    try:
        file = safetensors.safe_open(str(path), framework="np")
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a readable safetensors file. Received: {error}.") from None
    with file:
        yield file


def read_array(file: safetensors.safe_open, path: Path, name: str) -> np.ndarray:
    """A tensor of an open file as float32; from bfloat16 too, which NumPy does not have."""
    if file.get_slice(name).get_dtype() != "BF16":
        return file.get_tensor(name).astype(np.float32, copy=False)
    with open(path, "rb") as raw:  # the library has checked the header
        size = int.from_bytes(raw.read(8), "little")
        about = json.loads(raw.read(size))[name]
        begin, end = about["data_offsets"]
        raw.seek(8 + size + begin)
        upper = np.frombuffer(raw.read(end - begin), "<u2").astype(np.uint32)
    return (upper << 16).view(np.float32).reshape(about["shape"])


def _check(file: safetensors.safe_open, path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> None:
    there = set(file.keys())
    for word, names in (("missing", set(shapes) - there), ("unexpected", there - set(shapes))):
        if names:
            listed = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
            raise CheckpointError(
                f"{path}: {word} tensor {listed}. Received: {', '.join(sorted(there)[:24]) or 'no tensor'}."
            )
    for name, shape in shapes.items():
        found = file.get_slice(name)
        if tuple(found.get_shape()) != tuple(shape):
            raise CheckpointError(
                f"{path}: tensor {name!r} must have shape {list(shape)}. Received: {list(found.get_shape())}."
            )
        if found.get_dtype() != DTYPES[dtype]:
            raise CheckpointError(f"{path}: tensor {name!r} must be {dtype}. Received: {found.get_dtype()}.")
