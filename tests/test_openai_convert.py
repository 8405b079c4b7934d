"""OpenAI's 15 npy files to named tensors and back, bit for bit; each way to get them wrong is one clear error."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.convert import openai_mlstm
from lbzoo.errors import CheckpointError
from lbzoo.files import git_blob_sha1
from lbzoo.models.config import MLSTMConfig
from tests.fake_hub import git_sha1


def tensors_of(config: MLSTMConfig, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=shape).astype("float32") for name, shape in config.shapes().items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return openai_mlstm.write_npy_folder(tensors_of(MLSTMConfig(units=12, embedding_dim=6)), tmp_path / "model")


def save(path: Path, array: np.ndarray) -> None:
    np.save(path, array, allow_pickle=True)


@given(st.integers(1, 9), st.integers(1, 7), st.integers(1, 11), st.integers(0, 2**32 - 1))
def test_round_trip_is_bit_exact(units: int, embedding: int, vocab: int, seed: int) -> None:
    import tempfile

    config = MLSTMConfig(units=units, embedding_dim=embedding, vocab_size=vocab)
    tensors = tensors_of(config, seed)
    with tempfile.TemporaryDirectory() as name:
        path = openai_mlstm.write_npy_folder(tensors, name)
        first = {file: (path / file).read_bytes() for file in openai_mlstm.FILES}
        back_config, back = openai_mlstm.read_npy_folder(path)
        openai_mlstm.write_npy_folder(back, path)
        assert first == {file: (path / file).read_bytes() for file in openai_mlstm.FILES}
    assert back_config == config
    assert set(back) == set(tensors)
    for key, value in tensors.items():
        assert back[key].dtype == np.float32 and back[key].tobytes() == value.tobytes(), key


def test_the_files_are_what_numpy_reads(folder: Path) -> None:
    _, tensors = openai_mlstm.read_npy_folder(folder)
    assert np.array_equal(np.concatenate([np.load(folder / f"{i}.npy") for i in (2, 3, 4, 5)], axis=1), tensors["wh"])
    for i, name in enumerate(("embedding", "wx", None, None, None, None, "wmx", "wmh", "b", "gx", "gh", "gmx", "gmh")):
        if name:
            assert np.array_equal(np.load(folder / f"{i}.npy", allow_pickle=False), tensors[name]), name


def test_headers_have_the_length_of_the_release() -> None:
    for shape, size in (
        ((256, 64), 65_616),
        ((64, 4096), 1_048_656),
        ((16384,), 65_616),
        ((4096,), 16_464),
        ((256,), 1_104),
    ):
        assert len(openai_mlstm._header(shape)) + 4 * int(np.prod(shape)) == size


def test_a_plain_save_of_numpy_is_read_too(folder: Path) -> None:
    """Today's NumPy pads the header to 64 bytes."""
    for name in openai_mlstm.FILES:
        save(folder / name, np.load(folder / name))
    config, _ = openai_mlstm.read_npy_folder(folder)
    assert config == MLSTMConfig(units=12, embedding_dim=6)


def _missing(folder: Path) -> None:
    (folder / "7.npy").unlink()


def _swapped(folder: Path) -> None:
    held = (folder / "6.npy").read_bytes()
    (folder / "6.npy").write_bytes((folder / "13.npy").read_bytes())
    (folder / "13.npy").write_bytes(held)


def _misshapen(folder: Path) -> None:
    save(folder / "5.npy", np.zeros((12, 13), "float32"))


def _transposed(folder: Path) -> None:
    save(folder / "1.npy", np.ascontiguousarray(np.load(folder / "1.npy").T))


def _flat(folder: Path) -> None:
    save(folder / "0.npy", np.load(folder / "0.npy").ravel())


def _float64(folder: Path) -> None:
    save(folder / "8.npy", np.load(folder / "8.npy").astype("float64"))


def _big_endian(folder: Path) -> None:
    save(folder / "8.npy", np.load(folder / "8.npy").astype(">f4"))


def _fortran(folder: Path) -> None:
    save(folder / "3.npy", np.asfortranarray(np.load(folder / "3.npy")))


class Trap:
    """Unpickling this would write a file."""

    def __reduce__(self):
        return Path.touch, (Path("unpickled"),)


def _object(folder: Path) -> None:
    save(folder / "9.npy", np.array([Trap()], dtype=object))


def _pickle(folder: Path) -> None:
    (folder / "9.npy").write_bytes(pickle.dumps(Trap()))


def _zip(folder: Path) -> None:
    np.savez(folder / "x.npz", np.zeros(3))
    (folder / "x.npz").replace(folder / "9.npy")


def _cut(folder: Path) -> None:
    data = (folder / "2.npy").read_bytes()
    (folder / "2.npy").write_bytes(data[:-3])


def _tail(folder: Path) -> None:
    with open(folder / "2.npy", "ab") as file:
        file.write(b"tail")


def _empty(folder: Path) -> None:
    (folder / "14.npy").write_bytes(b"")


def _page(folder: Path) -> None:
    (folder / "14.npy").write_bytes(b"<!DOCTYPE html><html>Log in</html>")


def _nan(folder: Path) -> None:
    values = np.load(folder / "11.npy")
    values[3] = np.nan
    save(folder / "11.npy", values)


def _code(folder: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),), }\n"
    (folder / "11.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def _huge(folder: Path) -> None:
    (folder / "11.npy").write_bytes(openai_mlstm._header((1 << 40,)))


def _negative(folder: Path) -> None:
    (folder / "11.npy").write_bytes(openai_mlstm._header((-4,)))


@pytest.mark.parametrize(
    ("spoil", "file", "words"),
    [
        (_missing, "7.npy", "lacks"),
        (_swapped, "6.npy", "swapped"),
        (_misshapen, "5.npy", r"\[12, 13\]"),
        (_transposed, "1.npy", "shape"),
        (_flat, "0.npy", "shape"),
        (_float64, "8.npy", "float64"),
        (_big_endian, "8.npy", ">f4"),
        (_fortran, "3.npy", "Fortran"),
        (_object, "9.npy", "pickled"),
        (_pickle, "9.npy", "not a readable NumPy file"),
        (_zip, "9.npy", "not a readable NumPy file"),
        (_cut, "2.npy", "cut or has a tail"),
        (_tail, "2.npy", "cut or has a tail"),
        (_empty, "14.npy", "not a readable NumPy file"),
        (_page, "14.npy", "not a readable NumPy file"),
        (_nan, "11.npy", "not finite"),
        (_code, "11.npy", "not a readable NumPy file"),
        (_huge, "11.npy", "cut or has a tail"),
        (_negative, "11.npy", "11.npy"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_file_is_one_error_that_names_it(
    spoil, file: str, words: str, folder: Path, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    spoil(folder)
    with pytest.raises(CheckpointError, match=words) as caught:
        openai_mlstm.read_npy_folder(folder)
    assert file in str(caught.value)
    assert not (tmp_path / "unpickled").exists()


def test_no_folder_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Received: no .npy file"):
        openai_mlstm.read_npy_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("change", ["folded", "without output", "unknown", "misshapen", "float64"])
def test_tensors_that_do_not_fit_are_not_written(change: str, tmp_path: Path) -> None:
    tensors = tensors_of(MLSTMConfig(units=4, embedding_dim=3))
    if change == "folded":
        tensors = tensors_of(MLSTMConfig(units=4, embedding_dim=3, weight_norm=False))
    elif change == "without output":
        tensors = tensors_of(MLSTMConfig(units=4, embedding_dim=3, output=False))
    elif change == "unknown":
        tensors["other"] = tensors["b"]
    elif change == "misshapen":
        tensors["wmx"] = tensors["wmx"].T
    else:
        tensors["wmx"] = tensors["wmx"].astype("float64")
    with pytest.raises(CheckpointError, match="Received|Missing|Unknown"):
        openai_mlstm.write_npy_folder(tensors, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_transposed_view_is_written_as_it_reads(tmp_path: Path) -> None:
    tensors = tensors_of(MLSTMConfig(units=5, embedding_dim=3))
    views = {name: np.asfortranarray(value) for name, value in tensors.items()}
    _, back = openai_mlstm.read_npy_folder(openai_mlstm.write_npy_folder(views, tmp_path))
    for name, value in tensors.items():
        assert np.array_equal(back[name], value), name


def test_the_hash_of_the_release_is_gits(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")  # echo hello | git hash-object --stdin
    assert git_blob_sha1(path) == git_sha1(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
