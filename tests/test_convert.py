"""`lbzoo convert`: both ways for each kind of folder, and one line for what goes wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

import lbzoo
from lbzoo.convert import openai_mlstm
from tests import google_checkpoint
from tests import hf_folder as hf
from tests.conftest import one_error, seeded


def numbers(folder):
    return {name: variable.numpy() for name, variable in lbzoo.load(folder).named_weights().items()}


def same(one, other):
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


@pytest.fixture
def theirs(tmp_path):
    """A Hugging Face folder with both heads of pre-training and a buffer that is no weight."""
    tensors = {**hf.encoder(), **hf.masked_lm(), **hf.next_sentence()}
    return hf.write(tmp_path / "hf", {**tensors, "bert.embeddings.position_ids": np.arange(10)[None]})


def test_hugging_face_and_back(theirs, tmp_path, run):
    status, out, err = run("convert", "hf-bert", theirs, tmp_path / "ours")
    assert (status, out.strip()) == (0, str(tmp_path / "ours"))
    assert "left out (1): bert.embeddings.position_ids" in err
    same(numbers(tmp_path / "ours"), numbers(theirs))
    card = json.loads((tmp_path / "ours" / "card.json").read_text())
    assert card["left_out"] == ["bert.embeddings.position_ids"] and "hf-bert folder hf" in card["description"]
    status, out, err = run("convert", "hf-bert", tmp_path / "ours", tmp_path / "back", "--export")
    assert (status, err) == (0, "")
    same(numbers(tmp_path / "back"), numbers(theirs))
    assert (tmp_path / "back" / "vocab.txt").read_bytes() == (theirs / "vocab.txt").read_bytes()


def test_google_and_back(theirs, tmp_path, run):
    google = google_checkpoint.write(theirs, tmp_path / "uncased_L-2")
    status, _, err = run("convert", "google-bert", google, tmp_path / "ours")
    assert status == 0 and "left out (17)" in err
    same(numbers(tmp_path / "ours"), numbers(theirs))
    assert lbzoo.load(tmp_path / "ours").config.hidden_act == "gelu_tanh"
    assert run("convert", "google-bert", google, tmp_path / "erf", "--gelu", "erf", "--text", "cased")[0] == 0
    erf = lbzoo.load(tmp_path / "erf")
    assert (erf.config.hidden_act, erf.text) == ("gelu_erf", "cased")
    assert run("convert", "google-bert", theirs, tmp_path / "back", "--export")[0] == 0  # from theirs to theirs
    assert run("convert", "google-bert", tmp_path / "back", tmp_path / "again")[0] == 0
    same(numbers(tmp_path / "again"), numbers(theirs))
    assert lbzoo.load(tmp_path / "again").config == lbzoo.load(theirs).config


def test_openai_and_back(tiny_model, tmp_path, run):
    tensors = {name: variable.numpy() for name, variable in tiny_model.named_weights().items()}
    release = openai_mlstm.write_npy_folder(tensors, tmp_path / "model")
    assert run("convert", "openai-mlstm", release, tmp_path / "ours")[0] == 0
    same(numbers(tmp_path / "ours"), tensors)
    assert run("convert", "openai-mlstm", tmp_path / "ours", tmp_path / "back", "--export")[0] == 0
    for name in openai_mlstm.FILES:
        assert (tmp_path / "back" / name).read_bytes() == (release / name).read_bytes()


def test_a_wrong_folder_gives_one_clear_error(theirs, tiny_checkpoint, tmp_path, run):
    for arguments, words in (
        (("hf-bert", tmp_path / "none", "out"), "is no Hugging Face model"),
        (("hf-bert", tiny_checkpoint, "out"), "must be of a Hugging Face BERT"),
        (("google-bert", theirs, "out"), "is no BERT release of Google's"),
        (("openai-mlstm", theirs, "out"), "lacks 0.npy"),
        (("hf-bert", tiny_checkpoint, "out", "--export"), "Received: mlstm"),
        (("openai-mlstm", theirs, "out", "--export"), "Received: bert"),
        (("hf-bert", "mlstm-nothing", "out", "--export"), "there is no checkpoint of this name"),
        (("hf-bert", theirs, theirs), "holds other files"),
        (("hf-bert", theirs, theirs, "--export"), "must be new or empty"),
    ):
        place = [tmp_path / "out" if argument == "out" else argument for argument in arguments]
        status, out, err = run("convert", *place)
        assert (status, out) == (1, "") and words in one_error(err) and not (tmp_path / "out").exists()


def test_options_of_one_kind_are_for_that_kind(theirs, tmp_path, run):
    status, _, err = run("convert", "hf-bert", theirs, tmp_path / "out", "--gelu", "erf")
    assert status == 2 and "--gelu" in one_error(err)


def test_float16_checkpoints_are_exported(theirs, tmp_path, run):
    model = seeded(lbzoo.load(theirs))
    model.save_pretrained(tmp_path / "half", dtype="float16")
    assert run("convert", "hf-bert", tmp_path / "half", tmp_path / "back", "--export")[0] == 0
    same(numbers(tmp_path / "back"), numbers(tmp_path / "half"))
