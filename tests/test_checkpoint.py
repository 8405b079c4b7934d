"""Checkpoint folders: exact round trips, and strict reading. Writing them is in `test_checkpoint_saving.py`."""

from __future__ import annotations

import json
import pickle
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lbzoo import checkpoint, folder
from lbzoo.errors import CheckpointError
from lbzoo.manifest import FileSpec
from lbzoo.models.config import MLSTMConfig

CONFIG = MLSTMConfig(units=4, embedding_dim=2, vocab_size=8)


def tensors(config=CONFIG, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype("f4") for name, shape in config.shapes().items()}


@pytest.fixture
def small(tmp_path):
    """A checkpoint folder written without TensorFlow."""
    return checkpoint.write(tmp_path / "small", CONFIG, "openai", tensors(), card={"licence": "none"})


def reseal(place, change=None):
    """Rewrite config.json with the sizes and hashes of the files as they are now."""
    path = place / "config.json"
    values = json.loads(path.read_bytes())
    for name in values["files"]:
        spec = checkpoint.measure(place / name)
        values["files"][name] = {"size": spec.size, "sha256": spec.sha256}
    if change:
        change(values)
    path.write_text(json.dumps(values))


def beside(place):
    """Everything in the parent folder: nothing must be left there but the checkpoint itself."""
    return sorted(path.name for path in place.parent.iterdir())


# the model comes back


def test_a_model_comes_back_bit_by_bit(tiny_model, tmp_path):
    place = tiny_model.save_pretrained(tmp_path / "m")
    back = checkpoint.load(place)
    assert back.config == tiny_model.config and back.text == tiny_model.text
    for name, variable in tiny_model.named_weights().items():
        np.testing.assert_array_equal(back.named_weights()[name].numpy(), variable.numpy())
    ids = np.arange(12, dtype=np.int32).reshape(2, 6)
    np.testing.assert_array_equal(back(ids)[0].numpy(), tiny_model(ids)[0].numpy())
    assert beside(place) == ["m"]
    assert sorted(path.name for path in place.iterdir()) == ["card.json", "config.json", "model.safetensors"]


def test_float16_on_disk_is_float32_in_memory(tiny_model, tmp_path):
    full = checkpoint.save(tiny_model, tmp_path / "full")
    half = checkpoint.save(tiny_model, tmp_path / "half", dtype="float16")
    assert (half / "model.safetensors").stat().st_size < 0.6 * (full / "model.safetensors").stat().st_size
    for name, variable in checkpoint.load(half).named_weights().items():
        assert variable.dtype == "float32"
        wanted = tiny_model.named_weights()[name].numpy().astype("f2").astype("f4")
        np.testing.assert_array_equal(variable.numpy(), wanted)


@pytest.mark.parametrize("weight_norm", [True, False])
@pytest.mark.parametrize("output", [True, False])
def test_shapes_of_a_config_are_those_of_its_model(weight_norm, output):
    from lbzoo.models.mlstm import MLSTMLanguageModel

    model = MLSTMLanguageModel(MLSTMConfig(units=3, embedding_dim=5, weight_norm=weight_norm, output=output), seed=None)
    shapes = {name: tuple(variable.shape) for name, variable in model.named_weights().items()}
    assert shapes == model.config.shapes() and list(shapes) == list(model.config.shapes())


def test_every_variable_of_a_loaded_model_comes_from_the_file(small):
    model = checkpoint.load(small)
    assert len(model.variables) == len(model.named_weights()) == len(CONFIG.shapes())
    for name, array in tensors().items():
        np.testing.assert_array_equal(model.named_weights()[name].numpy(), array)


def test_random_weights_only_when_asked(small):
    (small / "model.safetensors").unlink()
    model = checkpoint.load(small, weights=False)
    assert np.abs(model.named_weights()["wh"].numpy()).max() > 0
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        checkpoint.load(small)


def test_the_same_weights_give_the_same_bytes(small, tmp_path):
    again = checkpoint.write(tmp_path / "again", CONFIG, "openai", tensors(), card={"licence": "none"})
    for path in small.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()
    assert folder.manifest_files(small) == folder.manifest_files(again)
    assert list(folder.manifest_files(small)) == ["config.json", "card.json", "model.safetensors"]


def test_a_card_keeps_its_fields_and_gets_a_name(small):
    assert checkpoint.load(small).card == {"name": "small", "licence": "none", "revision": None}
    assert checkpoint.load_card(small)["licence"] == "none"


def test_a_card_does_not_carry_an_old_revision(tiny_model, tmp_path):
    place = checkpoint.save(tiny_model, tmp_path / "m", card={"name": "mine", "revision": "0" * 40})
    assert json.loads((place / "card.json").read_text()) == {"name": "mine"}


@pytest.mark.parametrize("card", [{"a": float("nan")}, {"a": {1, 2}}, {"a": b"x"}, {"a": "x" * (2 << 20)}])
def test_a_card_holds_json_values(card, tmp_path):
    with pytest.raises(CheckpointError, match="the card must"):
        checkpoint.write(tmp_path / "m", CONFIG, "openai", tensors(), card=card)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_links_is_read(small, tmp_path):
    """As the Hub's cache lays them out."""
    links = tmp_path / "links"
    links.mkdir()
    for path in small.iterdir():
        (links / path.name).symlink_to(path)
    assert checkpoint.load(links).config == CONFIG


# arrays as they come


def layouts():
    base = np.random.default_rng(1).normal(size=(8, 2)).astype("f4")
    return {
        "transposed": np.ascontiguousarray(base.T).T,
        "sliced": np.repeat(np.repeat(base, 2, axis=0), 3, axis=1)[::2, ::3],
        "reversed": base[::-1, ::-1].copy()[::-1, ::-1],
        "fortran": np.asfortranarray(base),
        "big-endian": base.astype(">f4"),
        "float64": base.astype("f8"),
        "read-only": np.frombuffer(base.tobytes(), "f4").reshape(8, 2),
    }


@pytest.mark.parametrize("layout", layouts())
def test_arrays_of_any_layout_are_written_right(layout, tmp_path):
    array = layouts()[layout]
    wanted = layouts()["read-only"]
    np.testing.assert_array_equal(array, wanted)
    place = checkpoint.write(tmp_path / "m", CONFIG, "openai", {**tensors(), "embedding": array})
    np.testing.assert_array_equal(load_file(place / "model.safetensors")["embedding"], wanted)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_that_are_not_finite_are_not_saved(value, dtype, tmp_path):
    arrays = tensors()
    arrays["wh"][1, 2] = value
    with pytest.raises(CheckpointError, match="'wh' cannot be saved"):
        checkpoint.write(tmp_path / "m", CONFIG, "openai", arrays, dtype=dtype)
    assert list(tmp_path.iterdir()) == []


def test_what_float16_cannot_hold_is_not_saved(tmp_path):
    arrays = tensors()
    arrays["b"][0] = 70_000
    with pytest.raises(CheckpointError, match="'b' cannot be saved as float16.*beyond 65504"):
        checkpoint.write(tmp_path / "m", CONFIG, "openai", arrays, dtype="float16")
    checkpoint.write(tmp_path / "m", CONFIG, "openai", arrays)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int8", 32])
def test_other_dtypes_are_refused(dtype, tmp_path):
    with pytest.raises(CheckpointError, match="Received: dtype="):
        checkpoint.write(tmp_path / "m", CONFIG, "openai", tensors(), dtype=dtype)


@pytest.mark.parametrize("fault, message", [("missing", "missing tensor b"), ("extra", "unexpected tensor zz")])
def test_a_converter_must_bring_exactly_the_configs_tensors(fault, message, tmp_path):
    arrays = tensors()
    if fault == "missing":
        del arrays["b"]
    else:
        arrays["zz"] = np.zeros(3, "f4")
    with pytest.raises(CheckpointError, match=message):
        checkpoint.write(tmp_path / "m", CONFIG, "openai", arrays)
    assert list(tmp_path.iterdir()) == []


# strict reading


def flip(path, place=-1):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["model.safetensors", "card.json"])
@pytest.mark.parametrize("fault", ["flipped", "truncated", "longer", "empty", "gone", "folder"])
def test_a_changed_file_is_named(small, name, fault):
    path = small / name
    data = path.read_bytes()
    if fault == "flipped":
        flip(path)
    elif fault in ("truncated", "longer", "empty"):
        path.write_bytes({"truncated": data[:-1], "longer": data + b"\0", "empty": b""}[fault])
    else:
        path.unlink()
        if fault == "folder":
            path.mkdir()
    with pytest.raises(CheckpointError, match=re.escape(str(path))) as caught:
        checkpoint.load(small)
    assert "Received:" in str(caught.value) and "Get the checkpoint again" in str(caught.value)


def test_every_byte_of_the_weights_is_covered(small):
    path = small / "model.safetensors"
    for place in np.random.default_rng(0).integers(0, path.stat().st_size, 40):
        flip(path, place)
        with pytest.raises(CheckpointError, match="SHA-256"):
            checkpoint.verify(small)
        flip(path, place)
    checkpoint.verify(small)


def test_weights_swapped_with_those_of_another_checkpoint(small, tmp_path):
    other = checkpoint.write(tmp_path / "other", CONFIG, "openai", tensors(seed=1))
    shutil.copy(other / "model.safetensors", small)
    with pytest.raises(CheckpointError, match="SHA-256"):
        checkpoint.load(small)


def test_files_are_held_against_the_manifest_too(small):
    specs = [FileSpec(path, **about) for path, about in folder.manifest_files(small).items()]
    checkpoint.verify(small, specs)
    with (small / "config.json").open("a") as file:
        file.write("\n")
    checkpoint.load(small)  # in itself still sound
    with pytest.raises(CheckpointError, match=r"config\.json has changed"):
        checkpoint.verify(small, specs)
    with pytest.raises(CheckpointError, match=r"vocab\.txt cannot be read"):
        checkpoint.verify(small, [FileSpec("vocab.txt", 1, "0" * 64)])


def test_a_verified_folder_is_read_as_it_is(small, monkeypatch):
    """One pass over the bytes: loaders do not hash what `verify` gave them, nor it what its caller has hashed."""
    verified = checkpoint.verify(small)

    def never(*_):
        raise AssertionError("hashed again")

    monkeypatch.setattr(folder, "mismatch", never)
    assert checkpoint.load(verified).config == CONFIG and checkpoint.load_probe(verified) is None
    assert checkpoint.verify(small, checked=verified.files) == verified
    with pytest.raises(AssertionError, match="hashed again"):
        checkpoint.load(small)


def rewritten(change):
    def fault(place):
        arrays = load_file(place / "model.safetensors")
        change(arrays)
        save_file(arrays, place / "model.safetensors")

    return fault


def written(data):
    return lambda place: (place / "model.safetensors").write_bytes(data)


def cut(place):
    path = place / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


TENSOR_FAULTS = {
    "missing": (rewritten(lambda a: a.pop("gx")), "missing tensor gx"),
    "unexpected": (rewritten(lambda a: a.update(zz=np.zeros(1, "f4"))), "unexpected tensor zz"),
    "renamed": (rewritten(lambda a: a.update(Wh=a.pop("wh"))), "missing tensor wh"),
    "misshapen": (
        rewritten(lambda a: a.update(wx=a["wx"].T.copy())),
        r"'wx' must have shape \[2, 16\]. Received: \[16, 2\]",
    ),
    "flat": (
        rewritten(lambda a: a.update(wmh=a["wmh"].reshape(-1))),
        r"'wmh' must have shape \[4, 4\]. Received: \[16\]",
    ),
    "one row short": (rewritten(lambda a: a.update(embedding=a["embedding"][1:])), "'embedding' must have shape"),
    "float16 among float32": (
        rewritten(lambda a: a.update(b=a["b"].astype("f2"))),
        "'b' must be float32. Received: F16",
    ),
    "float64": (rewritten(lambda a: a.update(b=a["b"].astype("f8"))), "'b' must be float32. Received: F64"),
    "integers": (rewritten(lambda a: a.update(b=a["b"].astype("i4"))), "'b' must be float32. Received: I32"),
    "no tensor": (rewritten(lambda a: a.clear()), "missing tensor"),
    "truncated": (cut, "not a readable safetensors file"),
    "a pickle": (written(pickle.dumps({"wx": 1})), "not a readable safetensors file"),
    "text": (written(b"version https://git-lfs.github.com/spec/v1\n"), "not a readable safetensors file"),
    "header longer than the file": (written(b"\xff\xff\0\0\0\0\0\0{}"), "not a readable safetensors file"),
}


@pytest.mark.parametrize("fault, message", TENSOR_FAULTS.values(), ids=TENSOR_FAULTS)
def test_tensors_must_be_the_configs_own(small, fault, message):
    """Also where sizes and hashes fit, as in a folder that somebody made."""
    fault(small)
    reseal(small)
    with pytest.raises(CheckpointError, match=message) as caught:
        checkpoint.load(small)
    assert "model.safetensors" in str(caught.value) and "Received:" in str(caught.value)


def test_bfloat16_is_named_as_mistyped(small):
    path = small / "model.safetensors"
    save_file({name: array.astype("f2") for name, array in load_file(path).items()}, path)
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].replace(b'"F16"', b'"BF16"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    reseal(small)
    with pytest.raises(CheckpointError, match="'embedding' must be float32. Received: BF16"):
        checkpoint.load(small)


def setting(*path_and_value):
    *path, value = path_and_value

    def change(values):
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = value

    return change


CONFIG_FAULTS = {
    "not json": (b"units: 4", "not JSON"),
    "empty": (b"", "cannot be parsed"),
    "binary": (b"\x80\x04\x95", "not UTF-8"),
    "byte-order mark": (b"\xef\xbb\xbf{}", "byte-order mark"),
    "huge": (b" " * (2 << 20), "at most"),
    "deep": (b"[" * 50_000, "nested too deeply"),
    "a list": (b"[]", "must be an object"),
    "another library's": (b'{"model_type": "gpt2"}', "not of an lbzoo checkpoint.*gpt2"),
    "later format": (setting("format", 2), "format must be 1. Received: 2"),
    "format as text": (setting("format", "1"), "format must be 1"),
    "format as bool": (setting("format", True), "format must be 1"),
    "unknown architecture": (setting("architecture", "transformer"), "architecture must be mlstm"),
    "class by import path": (setting("architecture", "os.system"), "architecture must be mlstm"),
    "unknown key": (setting("auto_map", {"AutoModel": "x.py"}), "auto_map is not a known field"),
    "unknown config key": (setting("config", "layers", 2), "Received: unknown layers"),
    "units as text": (setting("config", "units", "4"), "units must be a positive integer"),
    "other units": (setting("config", "units", 5), "must have shape"),
    "units beyond memory": (setting("config", "units", 10**9), "must have shape"),
    "unknown policy": (setting("text", "ascii"), "text must be openai or reviews"),
    "unknown dtype": (setting("dtype", "float64"), "dtype must be float32 or float16"),
    "wrong dtype": (setting("dtype", "float16"), "must be float16. Received: F32"),
    "no files": (setting("files", {}), r"must name model\.safetensors"),
    "files as list": (setting("files", []), "files must be an object"),
    "itself": (setting("files", "config.json", {"size": 1, "sha256": "0" * 64}), "must not name itself"),
    "a path outside": (setting("files", "../x.json", {"size": 1, "sha256": "0" * 64}), "relative path"),
    "an absolute path": (setting("files", "/etc/x.json", {"size": 1, "sha256": "0" * 64}), "relative path"),
    "a pickle": (setting("files", "x.pkl", {"size": 1, "sha256": "0" * 64}), "must end in one of"),
    "no hash": (setting("files", "model.safetensors", {"size": 1}), "sha256 is missing"),
    "odd hash": (setting("files", "card.json", "sha256", "0" * 63), "sha256 must be 64"),
    "odd size": (setting("files", "card.json", "size", -1), "size must be an integer"),
    "unknown file key": (setting("files", "card.json", "url", "x"), "url is not a known field"),
}


@pytest.mark.parametrize("fault, message", CONFIG_FAULTS.values(), ids=CONFIG_FAULTS)
def test_a_malformed_config_is_one_clear_error(small, fault, message):
    if isinstance(fault, bytes):
        (small / "config.json").write_bytes(fault)
    else:
        reseal(small, fault)
    with pytest.raises(CheckpointError, match=message) as caught:
        checkpoint.load(small)
    assert "config.json" in str(caught.value) or "model.safetensors" in str(caught.value)
    assert "Received:" in str(caught.value) and len(str(caught.value)) < 600


def test_no_folder_and_no_config(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint folder"):
        checkpoint.load(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        checkpoint.load(tmp_path)
