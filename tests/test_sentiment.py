"""SentimentClassifier on tiny random checkpoints: what decides, streams, scikit-learn's habits, saving."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
import tracemalloc
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from lbzoo import checkpoint
from lbzoo.errors import CheckpointError, ConfigError, NotFittedError, TextError, UnknownModelError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.trace import Trace
from lbzoo.transfer.probe import Probe
from lbzoo.transfer.sentiment import SentimentClassifier

UNITS = 12
TEXTS = ["zzzz", "mmmm", "a zzzz", "b mmmm", "aa zzzz", "bb mmmm", "c zzzz", "d mmmm"] * 4
LABELS = ["good", "bad"] * 16


def tiny(**card):
    model = MLSTMLanguageModel(MLSTMConfig(units=UNITS, embedding_dim=8), card=card, seed=3)
    embedding = model.named_weights()["embedding"]
    embedding.assign(20 * embedding)  # states that differ enough for a penalised probe
    return model


def probe(**options):
    coef = np.random.default_rng(0).standard_normal((1, UNITS))
    return Probe(coef, [0.1], ["negative", "positive"], **options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    checkpoint.save(tiny(name="a", sentiment_unit=5, polarity=-1), root / "both", probe=probe(state="hidden"))
    checkpoint.save(tiny(results=[{"metric": "accuracy"}, {"metric": "bpc"}]), root / "probe", probe=probe(pool="mean"))
    checkpoint.save(tiny(sentiment_unit=5, polarity=-1), root / "unit")
    checkpoint.save(tiny(), root / "neither")
    return root


def test_the_default_is_the_bundled_checkpoint():
    assert SentimentClassifier().model == DEFAULT_MODEL == "mlstm-1024-reviews"


def test_a_checkpoints_probe_decides(folders):
    classifier = SentimentClassifier(folders / "probe")
    assert classifier.decides_by == "probe"
    assert classifier.classes_.tolist() == ["negative", "positive"]
    features = classifier._loaded().prepared.reader("cell", "mean").read([b"\n x ", b"\n yy "])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(classifier.predict_proba(["x", "yy"]), probe().predict_proba(features), atol=1e-6)
    assert classifier.predict(["x", "yy"]).tolist() == probe().predict(features).tolist()
    np.testing.assert_allclose(
        classifier.decision_function(["x", "yy"]), probe().decision_function(features), atol=1e-6
    )


def test_the_sentiment_unit_decides_where_there_is_no_probe_and_says_so(folders):
    classifier = SentimentClassifier(folders / "unit")
    values = classifier._loaded().prepared.reader().read([b"\n zz ", b"\n m "])[:, 5]
    with pytest.warns(UserWarning, match="has no probe: deciding by the sign of its sentiment unit") as caught:
        proba = classifier.predict_proba(["zz", "m"])
    assert len(caught) == 1 and caught[0].filename == __file__
    assert classifier.decides_by == "unit"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = classifier.predict(["zz", "m"]).tolist()
    assert labels == ["positive" if -value > 0 else "negative" for value in values]
    np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(values)), atol=1e-6)


def test_neither_probe_nor_unit(folders):
    for classifier in (SentimentClassifier(folders / "neither"), SentimentClassifier(tiny())):
        for ask in (classifier.predict, classifier.predict_proba, classifier.iter_predict, classifier.trace):
            with pytest.raises(NotFittedError, match=r"no probe .* Call fit\(texts, labels\)"):
                ask(["x"] if ask is not classifier.trace else "x")
        with pytest.raises(NotFittedError):
            assert classifier.classes_
        assert classifier.fit(TEXTS, LABELS).predict(["zzzz"]).tolist() == ["good"]


def test_names_and_folders_that_are_not_there(tmp_path):
    with pytest.raises(UnknownModelError):
        SentimentClassifier("mlstm-513-reviews").predict(["x"])
    with pytest.raises(CheckpointError):
        SentimentClassifier(tmp_path / "none").predict(["x"])
    with pytest.raises(ConfigError, match="Received: int"):
        SentimentClassifier(3).predict(["x"])


@pytest.mark.parametrize("names", [("bad", "good"), (0, 1), (False, True), (-1, 1)])
def test_fit_without_dev_data(folders, names):
    classifier = SentimentClassifier(folders / "unit")
    labels = [names[label == "good"] for label in LABELS]
    assert classifier.fit(TEXTS, labels) is classifier
    assert classifier.decides_by == "fit"
    answers = classifier.predict(TEXTS).tolist()
    assert answers == labels and type(answers[0]) is type(names[0])
    assert classifier.score(TEXTS, labels) == 1
    assert classifier.probe_.meta["held_out"] == {"fraction": 0.1, "seed": 42}
    assert (classifier.probe_.meta["train_rows"], classifier.probe_.meta["dev_rows"]) == (28, 4)
    again = SentimentClassifier(folders / "unit").fit(TEXTS, labels)
    assert again.probe_ == classifier.probe_


def test_fit_with_dev_data_and_options(folders):
    classifier = SentimentClassifier(folders / "probe", state="hidden", pool="mean", tanh=True)
    classifier.fit(iter(TEXTS), np.array(LABELS), tuple(TEXTS[:4]), iter(LABELS[:4]))
    made = classifier.probe_
    assert (made.state, made.pool, made.tanh, made.meta["refit"]) == ("hidden", "mean", True, "train")
    assert (made.meta["train_rows"], made.meta["dev_rows"]) == (32, 4)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS).sum(axis=1), 1, atol=1e-6)


def test_three_classes(folders):
    texts, labels = TEXTS + ["9 0 9 0"] * 8, LABELS + ["number"] * 8
    classifier = SentimentClassifier(folders / "unit").fit(texts, labels)
    assert classifier.classes_.tolist() == ["bad", "good", "number"]
    assert classifier.predict_proba(["x"]).shape == classifier.decision_function(["x"]).shape == (1, 3)
    assert classifier.score(texts, labels) > 0.9
    assert isinstance(classifier.trace("9 0", label="number"), Trace)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((["a", "b"], ["x"]), ConfigError, "2 texts, 1 labels"),
        (([], []), ConfigError, "no labels"),
        ((["a", "b"], ["x", "x"]), ConfigError, "two classes"),
        ((["a", "b"], ["x", "y"]), ConfigError, "two texts of one class"),
        (("ab", ["x", "y"]), TextError, "list of texts"),
        ((["a", None, "c", "d"], ["x", "y", "x", "y"]), TextError, "text 1"),
        ((["a", "b"], ["x", None]), TextError, "number 1 is no label"),
        ((["a"] * 4, ["x", "y"] * 2, ["a"]), ConfigError, "come together"),
        ((["a"] * 4, ["x", "y"] * 2, ["a"], ["x", "y"]), ConfigError, "dev texts and dev labels differ"),
        ((["a"] * 4, ["x", "y"] * 2, ["a"], ["z"]), ConfigError, "not among the classes"),
    ],
)
def test_fit_refuses(folders, arguments, error, message):
    classifier = SentimentClassifier(folders / "unit")
    with pytest.raises(error, match=message):
        classifier.fit(*arguments)
    assert not hasattr(classifier, "probe_")


def test_a_probe_of_nothing_but_zeros_is_announced(folders):
    with pytest.warns(UserWarning, match="4 texts did not suffice to tell classes apart"):
        SentimentClassifier(folders / "unit").fit(["a", "a", "a", "a"], [0, 1, 0, 1])


def test_predict_refuses_a_bare_text(folders):
    classifier = SentimentClassifier(folders / "probe")
    for texts in ("good", b"good", None, 3):
        with pytest.raises(TextError):
            classifier.predict(texts)
    with pytest.raises(TextError, match="text 1"):
        classifier.predict_proba(["a", None])
    with pytest.raises(ConfigError, match="differ in length"):
        classifier.score(["a", "b"], ["x"])


def test_no_texts(folders):
    classifier = SentimentClassifier(folders / "probe")
    assert classifier.predict([]).shape == (0,) and classifier.predict_proba([]).shape == (0, 2)
    assert classifier.decision_function([]).shape == (0,) and list(classifier.iter_predict([])) == []


def test_iter_predict_gives_what_predict_gives(folders):
    classifier = SentimentClassifier(folders / "probe", batch_size=4)
    texts = [text * (i % 5 + 1) for i, text in enumerate(TEXTS)]
    answers = list(classifier.iter_predict(iter(texts), window=7))
    assert [answer.label for answer in answers] == classifier.predict(texts).tolist()
    proba = classifier.predict_proba(texts)
    np.testing.assert_allclose([answer.probabilities for answer in answers], proba, atol=1e-6)
    np.testing.assert_allclose([answer.probability for answer in answers], proba.max(axis=1), atol=1e-6)
    assert type(answers[0].label) is str and type(answers[0].probability) is float


def test_iter_predict_reads_no_further_than_a_window(folders):
    classifier = SentimentClassifier(folders / "probe")
    endless = (f"text {i}" for i in itertools.count())
    answers = classifier.iter_predict(endless, window=10)
    assert len(list(itertools.islice(answers, 25))) == 25
    assert next(endless) == "text 30"


def test_iter_predict_in_flat_memory(folders):
    classifier = SentimentClassifier(folders / "probe")
    list(classifier.iter_predict(["warm up"] * 200, window=100))
    tracemalloc.start()
    try:
        peaks = []
        for rows in (1000, 4000):
            tracemalloc.reset_peak()
            for _ in classifier.iter_predict((f"text {i}" for i in range(rows)), window=100):
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0] + 100_000


def test_trace(folders):
    by_probe = SentimentClassifier(folders / "probe")
    long = "It was fine. " * 200
    found = by_probe.trace(long)
    assert found.name == "score of 'positive'" and len(found.values) == len(found.data) == len(long) + 2
    assert found.values[-1] == pytest.approx(by_probe.decision_function([long])[0], abs=1e-4)
    assert by_probe.trace("x", label="negative").name == "score of 'negative'"
    both = SentimentClassifier(folders / "both")
    assert both.trace("x").name == "unit 5 of the cell state" and both.trace("x").polarity == -1
    assert both.trace("x", follow="score").name == "score of 'positive'"
    assert both.trace("x", unit=2).name == "unit 2 of the cell state"
    with pytest.raises(ConfigError, match="follow must be"):
        both.trace("x", follow="probe")


def test_clone_and_parameters(folders):
    model = tiny(sentiment_unit=1)
    classifier = SentimentClassifier(model, state="hidden", batch_size=3).fit(TEXTS, LABELS)
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params() and copy.model is model
    assert not hasattr(copy, "probe_")
    assert is_classifier(copy)
    copy.set_params(model=folders / "probe")
    assert copy.decides_by == "probe"
    assert "SentimentClassifier" in repr(copy)


@pytest.mark.parametrize("dumps, loads", [(pickle.dumps, pickle.loads), (None, None)])
def test_copies_travel_without_weights(folders, tmp_path, dumps, loads):
    classifier = SentimentClassifier(str(folders / "unit")).fit(TEXTS, LABELS)
    if dumps:
        data = dumps(classifier)
        copy = loads(data)
    else:
        joblib.dump(classifier, tmp_path / "c")
        data, copy = (tmp_path / "c").read_bytes(), joblib.load(tmp_path / "c")
    assert len(data) < 4000
    np.testing.assert_array_equal(copy.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    with pytest.raises(ConfigError, match="cannot be pickled"):
        pickle.dumps(SentimentClassifier(tiny()))


def test_in_scikit_learns_hands(folders):
    classifier = SentimentClassifier(str(folders / "unit"))
    assert (cross_val_score(classifier, TEXTS, LABELS, cv=2) == 1).all()
    search = GridSearchCV(classifier, {"state": ["cell", "hidden"]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ == 1 and search.predict(["zzzz"]).tolist() == ["good"]
    pipeline = make_pipeline(classifier).fit(TEXTS, LABELS)
    assert pipeline.predict(["mmmm"]).tolist() == ["bad"]


def test_save_keeps_the_new_probe(folders, tmp_path):
    classifier = SentimentClassifier(folders / "probe").fit(TEXTS, LABELS)
    assert classifier.save(tmp_path / "mine") == tmp_path / "mine"
    again = SentimentClassifier(tmp_path / "mine")
    assert again.decides_by == "probe" and again.classes_.tolist() == ["bad", "good"]
    np.testing.assert_allclose(again.predict_proba(TEXTS), classifier.predict_proba(TEXTS), atol=1e-6)
    card = json.loads((tmp_path / "mine" / "card.json").read_text())
    assert card["name"] == "mine" and card["based_on"] == "probe" and card["results"] == [{"metric": "bpc"}]
    SentimentClassifier(folders / "both").save(tmp_path / "same", dtype="float16")
    same = SentimentClassifier(tmp_path / "same")
    assert same._loaded().probe == probe(state="hidden")


def test_after_a_change_of_model_fit_is_asked_for(folders):
    classifier = SentimentClassifier(folders / "unit").fit(TEXTS, LABELS)
    classifier.set_params(model=MLSTMLanguageModel(MLSTMConfig(units=5, embedding_dim=4)))
    with pytest.raises(ConfigError, match="reads 12 features; the model has 5 units. Fit again"):
        classifier.predict(["x"])


@pytest.mark.parametrize(
    "name, slow",
    [
        ("sentiment.SentimentClassifier", ("sklearn.linear_model", "sklearn.metrics", "tensorflow_addons")),
        ("inference.SentimentInference", ("sklearn", "tensorflow_addons")),
    ],
)
def test_predicting_starts_without_the_slow_parts(folders, name, slow):
    code = (
        f"import sys; from lbzoo.transfer.{name.replace('.', ' import ')} as Answers;"
        "assert 'tensorflow' not in sys.modules;"
        f"Answers({str(folders / 'probe')!r}).predict(['good']);"
        f"slow = set({slow}) & set(sys.modules); assert not slow, slow"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_labels_that_the_classifier_does_not_know_are_no_accuracy_of_zero(folders):
    with pytest.raises(ConfigError, match="labels must be among 'negative', 'positive'. Received: 1"):
        SentimentClassifier(str(folders / "unit")).score(["fine", "bad"], [1, 0])
