"""A probe on disk: exact round trips, and strict reading of both files."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import save as write_tensors

from lbzoo.errors import CheckpointError, ConfigError
from lbzoo.transfer.probe import Probe
from tests.test_probe import fitted


def test_file_round_trip(tmp_path):
    probe, features, _ = fitted(state="hidden", pool="mean", tanh=True, meta={"note": "é\ud800"})
    assert probe.save(tmp_path / "new" / "folder") == tmp_path / "new" / "folder"
    again = Probe.load(tmp_path / "new" / "folder")
    assert again == probe
    assert (again.state, again.pool, again.tanh, again.C) == ("hidden", "mean", True, probe.C)
    np.testing.assert_array_equal(again.predict(features), probe.predict(features))
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == ["probe.json", "probe.safetensors"]
    assert json.loads((tmp_path / "new" / "folder" / "probe.json").read_bytes())["class_type"] == "str"
    with pytest.raises(ConfigError, match="meta must hold JSON"):
        dataclasses.replace(probe, meta={"x": np.float32(1)}).save(tmp_path)


def test_views_are_written_as_they_read(tmp_path):
    """safetensors 0.8.0 writes transposed and sliced arrays wrongly where they are not made contiguous."""
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    Probe(base.T[:, ::2], [0, 0, 0], [0, 1, 2]).save(tmp_path)
    np.testing.assert_array_equal(Probe.load(tmp_path).coef, base.T[:, ::2])


def test_the_link_is_written_where_it_is_not_the_usual_one(tmp_path):
    usual = Probe(np.eye(3), [0, 0, 0], ["a", "b", "c"])
    softmax = dataclasses.replace(usual, link="softmax")
    assert "link" not in json.loads((usual.save(tmp_path) / "probe.json").read_bytes())
    assert Probe.load(tmp_path) == usual != softmax
    assert json.loads((softmax.save(tmp_path) / "probe.json").read_bytes())["link"] == "softmax"
    assert Probe.load(tmp_path) == softmax


GOOD_TENSORS = {"coef": np.ones((1, 3), np.float32), "intercept": np.zeros(1, np.float32)}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"extra": 1}, "unknown keys 'extra'"),
        ({"pool": ...}, "no 'pool'"),
        ({"format": 2}, "format 2; this lbzoo reads 1"),
        ({"format": True}, "format True"),
        ({"classes": ["a", 1]}, "classes must be a list of 'str'"),
        ({"classes": "ab"}, "classes must be a list"),
        ({"class_type": "int"}, "classes must be a list of 'int'"),
        ({"class_type": "builtins.str"}, "one of str, int"),
        ({"class_type": ["str"]}, "one of str, int"),
        ({"classes": ["a", "a"]}, "not sound.*different classes"),
        ({"classes": ["a", "b", "c"]}, "not sound.*3 classes"),
        ({"features": 4}, "states 4 features; probe.safetensors has 3"),
        ({"features": True}, "states True"),
        ({"state": "x"}, "not sound: state must"),
        ({"state": ["cell"]}, "not sound: state must"),
        ({"tanh": 0}, "not sound: tanh must"),
        ({"link": "probit"}, "not sound: link must"),
        ({"link": "identity"}, "not sound: a regression has no classes"),
        ({"C": -1}, "not sound: C must"),
        ({"C": True}, "not sound: C must"),
        ({"meta": 3}, "not sound: meta must"),
    ],
)
def test_load_is_strict_about_json(tmp_path, change, message):
    Probe([[1.0, 2, 3]], [0.0], ["a", "b"]).save(tmp_path)
    values = json.loads((tmp_path / "probe.json").read_text())
    values = {k: v for k, v in {**values, **change}.items() if v is not ...}
    (tmp_path / "probe.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=message):
        Probe.load(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"C": NaN}', '{"a": 1, "a": 2}', "\x00", "[" * 100_000])
def test_load_refuses_other_json(tmp_path, text):
    Probe([[1.0]], [0.0], ["a", "b"]).save(tmp_path)
    (tmp_path / "probe.json").write_text(text)
    with pytest.raises(CheckpointError, match="probe.json"):
        Probe.load(tmp_path)


@pytest.mark.parametrize(
    "tensors, message",
    [
        ({"coef": GOOD_TENSORS["coef"]}, "must hold coef and intercept"),
        ({**GOOD_TENSORS, "more": np.ones(1, np.float32)}, "must hold coef and intercept"),
        ({**GOOD_TENSORS, "coef": np.ones((1, 3))}, "coef must be float32 with 2 dimensions. Received: float64"),
        ({**GOOD_TENSORS, "coef": np.ones(3, np.float32)}, "coef must be float32 with 2 dimensions"),
        ({**GOOD_TENSORS, "coef": np.full((1, 3), np.nan, np.float32)}, "not sound: coef must be finite"),
        ({**GOOD_TENSORS, "intercept": np.zeros(2, np.float32)}, "not sound"),
        ({**GOOD_TENSORS, "spread": np.ones(2, np.float32)}, "not sound: spread"),
        ({**GOOD_TENSORS, "coef": np.ones((1, 0), np.float32)}, "not sound"),
    ],
)
def test_load_is_strict_about_tensors(tmp_path, tensors, message):
    Probe([[1.0, 2, 3]], [0.0], ["a", "b"]).save(tmp_path)
    (tmp_path / "probe.safetensors").write_bytes(write_tensors(tensors))
    with pytest.raises(CheckpointError, match=message):
        Probe.load(tmp_path)


def test_load_names_a_broken_or_missing_file(tmp_path):
    Probe([[1.0, 2, 3]], [0.0], ["a", "b"]).save(tmp_path)
    whole = (tmp_path / "probe.safetensors").read_bytes()
    for data in (b"", whole[:7], whole[:-1], whole + b"\0", b"\x80\x04pickle" + whole):
        (tmp_path / "probe.safetensors").write_bytes(data)
        with pytest.raises(CheckpointError, match="probe.safetensors"):
            Probe.load(tmp_path)
    (tmp_path / "probe.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"probe.safetensors.* cannot be read"):
        Probe.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"probe.json.* cannot be read"):
        Probe.load(tmp_path / "nothing")
