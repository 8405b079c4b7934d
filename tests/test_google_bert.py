"""Google's BERT folders: checkpoints that TensorFlow 1's own Saver wrote, the way back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

import lbzoo
from lbzoo.convert import google_bert
from lbzoo.errors import CheckpointError
from lbzoo.models.build import build
from tests import google_checkpoint
from tests import hf_folder as hf
from tests.golden import minilm


def theirs(folder, heads=True):
    heads = {**hf.masked_lm(), **hf.next_sentence()} if heads else {}
    return hf.write(folder, {**hf.encoder(), **heads})


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A release of Google's with both heads; copy it before changing a file."""
    place = tmp_path_factory.mktemp("google")
    return google_checkpoint.write(theirs(place / "hf"), place / "uncased_L-2_H-8_A-2")


def numbers(model):
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


def loaded(found):
    model = build(found.config, found.text, vocabulary=found.vocabulary)
    for name, variable in model.named_weights().items():
        variable.assign(found.tensors[name])
    return model


@pytest.mark.parametrize("heads", [False, True])
def test_the_same_weights_as_in_the_other_format(tmp_path, heads):
    source = theirs(tmp_path / "hf", heads)
    found = google_bert.read_folder(google_checkpoint.write(source, tmp_path / "google"))
    expected = lbzoo.load(source)
    assert found.config == dataclasses.replace(expected.config, hidden_act="gelu_tanh")
    assert found.text == "uncased" and found.vocabulary == expected.vocabulary
    assert set(found.tensors) == set(numbers(expected))
    for name, array in numbers(expected).items():
        np.testing.assert_array_equal(found.tensors[name], array)
    assert "global_step" in found.skipped and "bert/embeddings/word_embeddings/adam_m" in found.skipped
    assert len(found.skipped) == 17


@pytest.mark.skipif(minilm.weights() is None, reason="the weights are not installed: see tests/golden")
def test_real_weights_in_both_formats_are_one_model(tmp_path):
    found = google_bert.read_folder(google_checkpoint.write(minilm.weights(), tmp_path / "google"), gelu="erf")
    expected = lbzoo.load(minilm.weights())
    assert (found.config, found.text, found.vocabulary) == (expected.config, "uncased", expected.vocabulary)
    for name, array in numbers(expected).items():
        np.testing.assert_array_equal(found.tensors[name], array)
    google_bert.write_folder(tmp_path / "back", found.config, found.text, found.tensors, found.vocabulary)
    again = google_bert.read_folder(tmp_path / "back")
    assert again.config == expected.config and not again.skipped
    for name, array in numbers(expected).items():
        np.testing.assert_array_equal(again.tensors[name], array)


def test_heads_equal_transformers_from_googles_format(tmp_path):
    """The recorded outputs of transformers, through a checkpoint of TensorFlow 1."""
    source = tmp_path / "hf"
    shutil.copytree(minilm.FOLDER / "pretraining", source)
    (source / "vocab.txt").write_text("\n".join(hf.PIECES))
    golden = load_file(source / "outputs.safetensors")
    model = loaded(google_bert.read_folder(google_checkpoint.write(source, tmp_path / "google"), gelu="erf"))
    found = model(golden["ids"], segments=golden["segments"], mask=golden["mask"])
    np.testing.assert_allclose(found.next_sentence, golden["seq_relationship_logits"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("act", ["gelu_erf", "gelu_tanh", "relu"])
@pytest.mark.parametrize("heads", [False, True])
def test_ours_to_theirs_and_back_is_exact(tmp_path, act, heads):
    model = lbzoo.load(theirs(tmp_path / "hf", heads))
    config = dataclasses.replace(model.config, hidden_act=act, hidden_dropout_prob=0.2)
    written = google_bert.write_folder(tmp_path / "g", config, "cased", numbers(model), model.vocabulary)
    found = google_bert.read_folder(written, text="cased")
    assert (found.config, found.text, found.vocabulary) == (config, "cased", model.vocabulary)
    for name, array in numbers(model).items():
        np.testing.assert_array_equal(found.tensors[name], array)
    shapes = dict(tf.train.list_variables(str(written / "bert_model.ckpt")))
    again = dict(
        tf.train.list_variables(str(google_checkpoint.write(tmp_path / "hf", tmp_path / "o") / "bert_model.ckpt"))
    )
    assert shapes == {name: again[name] for name in again if "adam" not in name and name != "global_step"}


def test_case_is_what_the_vocabulary_shows(release, tmp_path):
    place = shutil.copytree(release, tmp_path / "g")
    (place / "vocab.txt").write_text("\n".join([*hf.PIECES[:-1], "Good"]))
    assert google_bert.read_folder(place).text == "cased"
    assert google_bert.read_folder(place, text="uncased").text == "uncased"


@pytest.mark.parametrize(
    "config, message",
    [
        ({"vocab_size": 8}, "must have shape"),
        ({"num_hidden_layers": 3}, "missing variable bert/encoder/layer_2"),
        ({"num_hidden_layers": 1}, "has no place for.*layer_1"),
        ({"embedding_size": 128}, "embedding_size is no field of Google's BERT"),
        ({"hidden_act": "linear"}, "hidden_act must be one of gelu, relu, tanh"),
        ({"gelu": "exact"}, "gelu must be one of tanh, erf"),
        ({"directionality": "left"}, "directionality"),
        ({"hidden_dropout_prob": 2}, "hidden_dropout_prob"),
        ({"vocab_size": None}, "lacks vocab_size"),
    ],
)
def test_a_field_is_honoured_or_refused(release, tmp_path, config, message):
    place = shutil.copytree(release, tmp_path / "g")
    values = {**json.loads((place / "bert_config.json").read_text()), **config}
    (place / "bert_config.json").write_text(json.dumps({n: v for n, v in values.items() if v is not None}))
    with pytest.raises(CheckpointError, match=message):
        google_bert.read_folder(place)


def test_a_wrong_folder_gives_one_clear_error(release, tmp_path):
    with pytest.raises(CheckpointError, match="is no BERT release of Google's"):
        google_bert.read_folder(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is no BERT release of Google's"):
        google_bert.read_folder(theirs(tmp_path / "hf"))
    for name, message in (
        ("vocab.txt", "lacks vocab.txt"),
        ("bert_model.ckpt.index", "must hold one TensorFlow checkpoint.*data-00000"),
        ("bert_model.ckpt.data-00000-of-00001", "is not a readable|cannot be read"),
    ):
        place = shutil.copytree(release, tmp_path / name)
        (place / name).unlink()
        with pytest.raises(CheckpointError, match=message):
            google_bert.read_folder(place)
    place = shutil.copytree(release, tmp_path / "cut")
    data = (place / "bert_model.ckpt.index").read_bytes()
    (place / "bert_model.ckpt.index").write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="is not a readable checkpoint"):
        google_bert.read_folder(place)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"head": "regressor"}, "no place for this head"),
        ({"layer_norm_eps": 1e-5}, "no place for this layer_norm_eps"),
        ({"hidden_act": "silu"}, "no place for this hidden_act"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, changes, message):
    model = lbzoo.load(theirs(tmp_path / "hf", heads=False))
    config = dataclasses.replace(model.config, **changes)
    with pytest.raises(CheckpointError, match=message):
        google_bert.write_folder(tmp_path / "g", config, "uncased", numbers(model), model.vocabulary)
    with pytest.raises(CheckpointError, match="no place for this vocabulary"):
        google_bert.write_folder(tmp_path / "g", model.config, "uncased", numbers(model), None)
    with pytest.raises(CheckpointError, match="no place for this text"):
        google_bert.write_folder(tmp_path / "g", model.config, "reviews-uncased", numbers(model), model.vocabulary)
    with pytest.raises(CheckpointError, match="must be new or empty"):
        google_bert.write_folder(tmp_path / "hf", model.config, "uncased", numbers(model), model.vocabulary)
