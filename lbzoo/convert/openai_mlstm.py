"""OpenAI's release of the 4096-unit mLSTM (15 `.npy` files by position) to tensors by name, and back, bit for bit.

Source: `encoder.py` of github.com/openai/generating-reviews-discovering-sentiment. Layout and gate order (i f o u)
are already ours; only `wh` comes in four files, one per gate.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lbzoo.errors import CheckpointError
from lbzoo.models.config import MLSTMConfig


@dataclasses.dataclass(frozen=True)
class NpyFile:
    """One file of the release: its tensor, its shape in letters (v vocabulary, e embedding, n units), its gate."""

    tensor: str
    shape: tuple[str, ...]
    gate: int | None = None


FILES: dict[str, NpyFile] = {
    "0.npy": NpyFile("embedding", ("v", "e")),
    "1.npy": NpyFile("wx", ("e", "4n")),
    "2.npy": NpyFile("wh", ("n", "n"), gate=0),
    "3.npy": NpyFile("wh", ("n", "n"), gate=1),
    "4.npy": NpyFile("wh", ("n", "n"), gate=2),
    "5.npy": NpyFile("wh", ("n", "n"), gate=3),
    "6.npy": NpyFile("wmx", ("e", "n")),
    "7.npy": NpyFile("wmh", ("n", "n")),
    "8.npy": NpyFile("b", ("4n",)),
    "9.npy": NpyFile("gx", ("4n",)),
    "10.npy": NpyFile("gh", ("4n",)),
    "11.npy": NpyFile("gmx", ("n",)),
    "12.npy": NpyFile("gmh", ("n",)),
    "13.npy": NpyFile("out_w", ("n", "v")),
    "14.npy": NpyFile("out_b", ("v",)),
}


def read_npy_folder(folder: str | Path) -> tuple[MLSTMConfig, dict[str, np.ndarray]]:
    """Read the 15 files `0.npy` ... `14.npy`; nothing is ever unpickled.

    Returns:
        The configuration, whose sizes follow from the shapes, and float32 tensors by their lbzoo names:
        embedding [vocab, e], wx [e, 4n], wh [n, 4n], wmx [e, n], wmh [n, n], b gx gh [4n], gmx gmh [n],
        out_w [n, vocab], out_b [vocab].

    Raises:
        CheckpointError: a file is missing, pickled, cut, of another dtype, order or shape, or holds a value that
            is not finite. The message names the file.
    """
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} lacks {', '.join(missing)}: OpenAI's release is the 15 files 0.npy ... 14.npy. "
            f"Received: {', '.join(sorted(p.name for p in folder.glob('*.npy'))) or 'no .npy file'}. "
            "Copy the whole `model/` folder of the release."
        )
    headers = {name: _read_header(folder / name) for name in FILES}
    sizes = _solve({name: shape for name, (shape, _) in headers.items()})
    for name, spec in FILES.items():
        expected = tuple(_dimension(letter, sizes) for letter in spec.shape)
        if headers[name][0] != expected:
            raise CheckpointError(
                f"{folder / name} should hold {spec.tensor} of shape {list(expected)} "
                f"({sizes['n']} units, embedding {sizes['e']}, vocabulary {sizes['v']}, as most of the files say). "
                f"Received: shape {list(headers[name][0])}. Was it swapped with another file? Copy the release again."
            )
    config = MLSTMConfig(units=sizes["n"], vocab_size=sizes["v"], embedding_dim=sizes["e"], weight_norm=True)
    tensors: dict[str, np.ndarray] = {}
    for name, spec in FILES.items():
        shape, offset = headers[name]
        values = np.fromfile(folder / name, dtype="<f4", offset=offset).reshape(shape)
        if not np.isfinite(values).all():
            raise CheckpointError(f"{folder / name} ({spec.tensor}) holds values that are not finite. Copy it again.")
        if spec.gate is None:
            tensors[spec.tensor] = values
        else:
            block = tensors.setdefault(spec.tensor, np.empty((sizes["n"], 4 * sizes["n"]), np.float32))
            block[:, spec.gate * sizes["n"] : (spec.gate + 1) * sizes["n"]] = values
    return config, tensors


def write_npy_folder(tensors: Mapping[str, np.ndarray], folder: str | Path) -> Path:
    """Write named tensors (training form, with output layer) as OpenAI's 15 files.

    The bytes equal those of the release, header included, so that `git hash-object` gives the published hashes.

    Raises:
        CheckpointError: a tensor is missing, unknown, not float32 or of a shape that does not fit the others.
    """
    wanted = {spec.tensor for spec in FILES.values()}
    missing, unknown = sorted(wanted - set(tensors)), sorted(set(tensors) - wanted)
    if missing or unknown:
        raise CheckpointError(
            "OpenAI's layout needs the training form (gains gx, gh, gmx, gmh) with the output layer. "
            f"Missing: {', '.join(missing) or 'none'}. Unknown: {', '.join(unknown) or 'none'}. "
            "A folded checkpoint has lost its gains and cannot be written in this layout."
        )
    blocks = {name: _block(spec, np.asarray(tensors[spec.tensor])) for name, spec in FILES.items()}
    sizes = _solve({name: block.shape for name, block in blocks.items()})
    for name, spec in FILES.items():
        expected = tuple(_dimension(letter, sizes) for letter in spec.shape)
        if blocks[name].shape != expected or blocks[name].dtype != np.float32:
            raise CheckpointError(
                f"{spec.tensor} does not fit {name}: expected float32 {list(expected)}. "
                f"Received: {blocks[name].dtype} {list(blocks[name].shape)}."
            )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, block in blocks.items():
        with open(folder / name, "wb") as file:
            file.write(_header(block.shape))
            np.ascontiguousarray(block).tofile(file)
    return folder


def _read_header(path: Path) -> tuple[tuple[int, ...], int]:
    """The shape and the data's offset of a float32, C-ordered npy file; anything else is refused."""
    advice = "Expected a NumPy file of float32 numbers in C order. Copy it from the release again."
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"npy version {version[0]}.{version[1]}")
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran_order, dtype = read(file)
            offset = file.tell()
    except (ValueError, SyntaxError, EOFError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is not a readable NumPy file (Received: {reason}). {advice}") from error
    if dtype.hasobject:
        raise CheckpointError(f"{path} holds pickled Python objects, which lbzoo never loads. {advice}")
    if dtype != np.dtype("<f4"):
        raise CheckpointError(f"{path} has the wrong number type. Received: {dtype}. {advice}")
    if fortran_order and len(shape) > 1:
        raise CheckpointError(f"{path} is stored in Fortran order. {advice}")
    expected, received = offset + 4 * int(np.prod(shape, dtype=np.int64)), path.stat().st_size
    if expected != received:
        raise CheckpointError(
            f"{path} is cut or has a tail: shape {list(shape)} takes {expected} bytes. Received: {received}. {advice}"
        )
    return tuple(shape), offset


def _solve(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes v, e, n as most files say: one misplaced file is then the odd one out and can be named."""
    votes: dict[str, Counter] = {"v": Counter(), "e": Counter(), "n": Counter()}
    for name, shape in shapes.items():
        letters = FILES[name].shape
        if len(letters) != len(shape):
            continue
        for letter, size in zip(letters, shape):
            factor = 4 if letter.startswith("4") else 1
            if size and size % factor == 0:
                votes[letter[-1]][size // factor] += 1
    undecided = [letter for letter, counter in votes.items() if not counter]
    if undecided:
        raise CheckpointError(f"no file has a usable shape. Received: {dict(shapes)}. Copy the release again.")
    return {letter: counter.most_common(1)[0][0] for letter, counter in votes.items()}


def _dimension(letter: str, sizes: Mapping[str, int]) -> int:
    return 4 * sizes["n"] if letter == "4n" else sizes[letter]


def _block(spec: NpyFile, tensor: np.ndarray) -> np.ndarray:
    if spec.gate is None:
        return tensor
    if tensor.ndim != 2 or tensor.shape[1] % 4:
        raise CheckpointError(f"{spec.tensor} should be [n, 4n]. Received: shape {list(tensor.shape)}.")
    width = tensor.shape[1] // 4
    return tensor[:, spec.gate * width : (spec.gate + 1) * width]


def _header(shape: tuple[int, ...]) -> bytes:
    # NumPy of 2017 padded to 16 bytes, today's pads to 64; the release's hashes cover the header.
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin1")
    padding = 16 - (10 + len(text) + 1) % 16
    text += b" " * padding + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
