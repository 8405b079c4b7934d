"""A fine-tuned classifier on disk: it comes back equal, and one that answers otherwise than it did is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import lbzoo
from lbzoo import checkpoint
from lbzoo.errors import CheckpointError
from lbzoo.files import sha256_file
from lbzoo.transfer import classifier_file
from lbzoo.transfer.classifier import TextClassifier
from lbzoo.transfer.sentiment import SentimentClassifier
from tests.order_task import SETTINGS, small_model, texts_and_labels

TEXTS, LABELS = texts_and_labels(48)


@pytest.fixture(scope="module")
def tuned():
    card = {"name": "base", "license": "MIT", "results": [{"metric": "bpc"}], "sentiment_unit": 3, "polarity": 1}
    return TextClassifier(small_model(**card), **{**SETTINGS, "epochs": 2, "random_state": 5}).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def saved(tuned, tmp_path_factory):
    return tuned.save(tmp_path_factory.mktemp("saved") / "mine")


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def rewrite(folder, name, change):
    """Change a JSON file of a checkpoint and make its hash right again, as a careless tool would."""
    path = folder / name
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")
    if name != "config.json":
        spec = {"size": path.stat().st_size, "sha256": sha256_file(path)}
        rewrite(folder, "config.json", lambda config: config["files"].__setitem__(name, spec))


def test_it_comes_back_equal(tuned, saved):
    names = ["card.json", "classifier.json", "config.json", "model.safetensors", "probe.json", "probe.safetensors"]
    assert sorted(path.name for path in saved.iterdir()) == names
    again = TextClassifier.load(str(saved))
    np.testing.assert_allclose(again.predict_proba(TEXTS), tuned.predict_proba(TEXTS), atol=1e-6)
    assert again.classes_.tolist() == ["x", "y"] and again.history_ == tuned.history_
    assert again.best_epoch_ == tuned.best_epoch_
    assert again.get_params() == {**tuned.get_params(), "model": str(saved)}
    for name, variable in again.model_.named_weights().items():
        np.testing.assert_array_equal(variable.numpy(), tuned.model_.named_weights()[name].numpy())
    card = json.loads((saved / "card.json").read_text())
    assert card["name"] == "mine" and card["based_on"] == "base" and card["license"] == "MIT"
    assert card["results"] == [] and not {"sentiment_unit", "polarity"} & set(card)


def test_none_of_the_texts_that_were_trained_on_is_in_it(saved):
    for path in saved.iterdir():
        data = path.read_bytes()
        assert not any(text.encode() in data for text in TEXTS), path


@pytest.mark.parametrize("names", [[1, 2, 3], ["é\ud800", "\U0001f600", "\udc00\ud83d"]])  # halves of characters, too
def test_three_labels_of_another_kind_in_float16(tmp_path, names):
    texts, labels = ["one", "two", "three"] * 12, names * 12
    three = TextClassifier(small_model(), **{**SETTINGS, "unfreeze": "head"}).fit(texts, labels)
    again = TextClassifier.load(three.save(tmp_path / "half", dtype="float16"))
    np.testing.assert_allclose(again.predict_proba(texts), three.predict_proba(texts), atol=5e-3)
    assert again.predict(["one"]).tolist() == three.predict(["one"]).tolist()
    assert again.classes_.tolist() == sorted(names)
    assert checkpoint.read_folder(tmp_path / "half").dtype == "float16"
    assert three.save(tmp_path / "half") == tmp_path / "half"  # in the place of the first


def test_settings_that_are_no_names_or_numbers_are_left_out(tmp_path, monkeypatch):
    options = {**SETTINGS, "unfreeze": "head", "random_state": np.random.RandomState(1), "dtype": "bfloat16"}
    other = TextClassifier(small_model(), **{**options, "learning_rate": np.float32(0.5), "epochs": np.int64(2)})
    values = json.loads((other.fit(TEXTS, LABELS).save(tmp_path / "m") / "classifier.json").read_text())
    assert not {"model", "random_state"} & set(values["settings"])
    assert values["settings"]["learning_rate"] == 0.5 and values["settings"]["epochs"] == 2
    again = TextClassifier.load(tmp_path / "m")
    assert again.dtype == "bfloat16" and again.random_state == TextClassifier().random_state
    np.testing.assert_allclose(again.predict_proba(TEXTS), other.predict_proba(TEXTS), atol=1e-6)
    monkeypatch.chdir(tmp_path)
    assert lbzoo.load(TextClassifier.load("m").model).config == other.model_.config  # a folder, no name of the zoo
    other.set_params(model="mlstm-512-reviews").save(tmp_path / "m")
    assert TextClassifier.load(tmp_path / "m").model == "mlstm-512-reviews"


@pytest.mark.parametrize("load", [TextClassifier.load, lambda folder: SentimentClassifier(folder).predict(["x"])])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("classifier.json", lambda v: v["expected"]["probabilities"][0].reverse()),
        ("config.json", lambda v: v.update(text="openai")),
    ],
    ids=["answers", "text policy"],
)
def test_other_answers_than_when_it_was_saved_are_refused(folder, load, name, change):
    rewrite(folder, name, change)
    with pytest.raises(CheckpointError, match=r"does not answer as it did .* Expected for .* Received: 0\.\d{4}"):
        load(folder)


@pytest.mark.parametrize("change", [{"state": "cell"}, {"pool": "mean"}, {"tanh": True}], ids=str)
def test_a_head_on_other_features_is_refused(folder, change):
    rewrite(folder, "probe.json", lambda values: values.update(change))
    with pytest.raises(CheckpointError, match="must read what fine-tuning trains"):
        TextClassifier.load(folder)
    if "tanh" not in change:  # states near zero are their own tanh
        with pytest.raises(CheckpointError, match="does not answer as it did"):
            SentimentClassifier(folder).predict(["x"])


@pytest.mark.parametrize("change", [lambda v: v["classes"].reverse(), lambda v: v.update(classes=["x", "z"])])
def test_labels_in_another_order_are_refused(folder, change):
    rewrite(folder, "probe.json", change)
    with pytest.raises(CheckpointError, match=r"other labels than it was saved for. Expected: \['x', 'y'\]"):
        TextClassifier.load(folder)


def test_another_tensor_of_the_same_shape_is_refused(folder):
    from lbzoo.tensors import read_tensors, write_tensors

    info = checkpoint.read_folder(folder)
    tensors = dict(read_tensors(folder / "model.safetensors", info.config.shapes(), "float32"))
    write_tensors(folder / "model.safetensors", {**tensors, "wmh": tensors["wmh"].T})
    path = folder / "model.safetensors"
    spec = {"size": path.stat().st_size, "sha256": sha256_file(path)}
    rewrite(folder, "config.json", lambda config: config["files"].__setitem__(path.name, spec))
    with pytest.raises(CheckpointError, match="does not answer as it did"):
        TextClassifier.load(folder)


def test_a_changed_byte_is_found_before_anything_is_read(folder):
    (folder / "classifier.json").write_bytes(
        (folder / "classifier.json").read_bytes().replace(b"classify", b"Classify")
    )
    with pytest.raises(CheckpointError, match="classifier.json has changed"):
        TextClassifier.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(format=2), "format must be 1"),
        (lambda v: v.update(task="rank"), "task must be classify or regress"),
        (lambda v: v.update(task="regress"), "numbers is missing"),
        (lambda v: v.update(more=1), "is not a known field"),
        (lambda v: v.pop("expected"), "expected is missing"),
        (lambda v: v["expected"].pop("classes"), "classes is missing"),
        (lambda v: v["expected"].update(texts=[]), "must hold texts"),
        (lambda v: v["expected"].update(texts=[1]), "must hold texts"),
        (lambda v: v["expected"].update(probabilities=[[1, "0"]]), "must hold texts"),
        (lambda v: v["expected"].update(probabilities=[[1, 0], [1]]), "must hold texts"),
        (lambda v: v["expected"].update(probabilities=[[0.5, 0.2, 0.3]] * 6), r"shape \[6, 3\]"),
        (lambda v: v["expected"].update(probabilities=[[0.5, 0.5]]), r"shape \[1, 2\]"),
        (lambda v: v["settings"].update(speed=3), "settings that this lbzoo does not know. Received: speed"),
        (lambda v: v.update(settings=3), "settings must be an object"),
    ],
)
def test_a_malformed_file_is_refused(folder, change, message):
    rewrite(folder, "classifier.json", change)
    with pytest.raises(CheckpointError, match=message):
        TextClassifier.load(folder)


def test_folders_that_are_no_classifier(tmp_path):
    checkpoint.save(small_model(), tmp_path / "plain")
    with pytest.raises(CheckpointError, match="not written by TextClassifier.save: it has no classifier.json"):
        TextClassifier.load(tmp_path / "plain")
    with pytest.raises(CheckpointError, match="no checkpoint folder here"):
        TextClassifier.load(tmp_path / "none")


def test_the_other_classes_read_it_as_a_checkpoint_with_a_probe(tuned, saved):
    other = SentimentClassifier(saved, dtype="bfloat16")
    assert other.decides_by == "probe" and other.classes_.tolist() == ["x", "y"]
    np.testing.assert_allclose(other.predict_proba(TEXTS), tuned.predict_proba(TEXTS), atol=0.05)
    trace = SentimentClassifier(saved).trace(TEXTS[0])
    assert trace.values[-1] == pytest.approx(tuned.decision_function(TEXTS[:1])[0], abs=1e-4)


def test_the_expected_texts_meet_what_text_policies_differ_in():
    joined = "".join(classifier_file.TEXTS)
    assert all(mark in joined for mark in ("<br />", "&amp;", "\x93", "\r\n", "😀")) and "" in classifier_file.TEXTS
    assert max(map(len, classifier_file.TEXTS)) > 256  # longer than a chunk
