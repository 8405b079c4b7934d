"""TextClassifier on a tiny BERT, on pairs, and for numbers: the same conventions as on an mLSTM."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import lbzoo
from lbzoo.errors import ConfigError, TextError
from lbzoo.transfer.classifier import TextClassifier
from tests import order_task
from tests.order_bert import SETTINGS, pairs_and_numbers, small_bert, texts_and_labels

TEXTS, LABELS = texts_and_labels(128)
PAIRS, NUMBERS = pairs_and_numbers(48)


def quick(model=None, **options):
    """The head alone."""
    return TextClassifier(model or small_bert(), **{**SETTINGS, "unfreeze": "head", **options})


def weights(model):
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


@pytest.fixture(scope="module")
def fitted():
    return TextClassifier(small_bert(name="base"), **SETTINGS).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def regressor():
    """Trained through, of pairs, with dropout in the body."""
    model = small_bert(dropout=0.1)
    return TextClassifier(model, **{**SETTINGS, "epochs": 1}, task="regress").fit(PAIRS, NUMBERS)


def test_it_learns_more_than_its_head_alone(fitted):
    found = [row["held_out_accuracy"] for row in fitted.history_]
    assert found[fitted.best_epoch_] == max(found) > found[0]
    assert fitted.score(*texts_and_labels(100, seed=9)) > 0.9
    start = weights(small_bert().with_head(None))
    assert all(not np.array_equal(value, start[name]) for name, value in weights(fitted.model_).items())


def test_the_same_seed_gives_the_same_weights():
    options = {**SETTINGS, "epochs": 1, "validation_fraction": 0, "dropout": None, "random_state": 7}
    first, second = (TextClassifier(small_bert(dropout=0.1), **options).fit(TEXTS[:33], LABELS[:33]) for _ in range(2))
    for name, value in weights(first.model_).items():
        np.testing.assert_array_equal(value, weights(second.model_)[name])


def test_answers_and_copies_that_travel(fitted):
    proba = fitted.predict_proba(TEXTS)
    np.testing.assert_allclose(fitted.predict_proba(TEXTS[:1]), proba[:1], atol=1e-5)
    np.testing.assert_allclose(
        [answer.probabilities for answer in fitted.iter_predict(iter(TEXTS), window=7)], proba, atol=1e-5
    )
    there = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(there.predict_proba(TEXTS), proba, atol=1e-6)
    assert clone(fitted).get_params() == fitted.get_params()


def test_texts_that_are_odd_or_too_long_are_never_nan():
    rows = ["", " ", b"", b"\xff\xfe", "\ud800", "good " * 5000, "😀", "bad", "film"]
    with pytest.warns(UserWarning, match=r"1 of 9 texts have more than the 12 tokens that are read") as caught:
        tuned = TextClassifier(small_bert(), **{**SETTINGS, "epochs": 1, "batch_size": 4}, max_length=12).fit(
            rows, [i % 3 for i in range(9)], class_weight="balanced"
        )
    assert len(caught) == 1 and caught[0].filename == __file__
    assert all(np.isfinite(value).all() for value in weights(tuned.model_).values())
    assert np.isfinite(tuned.history_[-1]["loss"]) and tuned.model_.config.max_position_embeddings == 12
    with pytest.warns(UserWarning, match="2 of 4 texts have more than the 12 tokens"):
        assert np.isfinite(tuned.predict_proba(["", "good " * 11, "bad " * 300, "good " * 10])).all()


@pytest.mark.parametrize(
    "form", [list, lambda pairs: np.array(pairs), lambda pairs: pd.DataFrame(pairs, columns=["a", "b"])]
)
def test_pairs_in_every_form_give_the_same(form):
    labels = [number > 1000 for number in NUMBERS]
    tuned = quick().fit(form(PAIRS), labels, validation_data=(form(PAIRS[:9]), labels[:9]))
    assert tuned.probe_.meta["pairs"] and tuned.classes_.tolist() == [False, True]
    wanted = quick().fit(PAIRS, labels, validation_data=(PAIRS[:9], labels[:9])).predict_proba(PAIRS)
    np.testing.assert_allclose(tuned.predict_proba(form(PAIRS)), wanted, atol=1e-5)
    assert tuned.score(form(PAIRS), labels) > 0.6
    with pytest.raises(TextError, match="pairs of texts are needed"):
        tuned.predict(["good"])


def test_kinds_do_not_mix(fitted):
    with pytest.raises(TextError, match="validation_data must hold pairs, as X does. Received: single texts"):
        TextClassifier("no-such-model").fit(PAIRS, [0, 1] * 24, validation_data=(["a", "b"], [0, 1]))
    with pytest.raises(TextError, match="single texts are needed. Received: pairs"):
        fitted.predict(PAIRS)


def test_pairs_on_an_mlstm():
    tuned = TextClassifier(order_task.small_model(), epochs=1, task="regress").fit(PAIRS, NUMBERS)
    assert np.isfinite(tuned.predict(PAIRS)).all() and "held_out_r2" in tuned.history_[1]


def test_numbers_come_back_in_their_own_unit(regressor):
    found = regressor.predict(PAIRS)
    assert found.dtype == np.float64 and regressor.predict([]).shape == (0,)
    assert regressor.score(PAIRS, NUMBERS) == pytest.approx(r2_score(NUMBERS, found)) and found.mean() > 900
    weight = np.arange(len(PAIRS))
    assert regressor.score(PAIRS, NUMBERS, weight) == pytest.approx(r2_score(NUMBERS, found, sample_weight=weight))
    assert [answer.label for answer in regressor.iter_predict(PAIRS)] == pytest.approx(found.tolist())
    best = regressor.history_[regressor.best_epoch_]["held_out_r2"]
    assert best == max(row["held_out_r2"] for row in regressor.history_) and not hasattr(regressor, "classes_")
    with pytest.raises(ConfigError, match="no probabilities"):
        regressor.predict_proba(PAIRS)


def test_numbers_of_any_unit_are_learned_alike():
    found = [
        quick(task="regress").fit(PAIRS, [factor * number for number in NUMBERS]).predict(PAIRS) / factor
        for factor in (1, 1e-6, 1e6)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-3)
    assert r2_score(NUMBERS, found[0]) > 0.1


@pytest.mark.parametrize("texts", [["good"], ["good", "bad"], ["good", "bad", ""]])
def test_numbers_that_are_all_equal(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nothing could be held out of one
        tuned = quick(task="regress").fit(texts, [3] * len(texts))
    np.testing.assert_allclose(tuned.predict([*texts, "film"]), 3, atol=1e-5)
    assert tuned.score(["good"], [4.0]) == 0.0


@pytest.mark.parametrize(
    ("y", "options", "error", "message"),
    [
        ([1, None], {}, TextError, "number 1 is no number to learn.*Drop the rows"),
        ([1.0, np.nan], {}, TextError, "number 1 is no number to learn.*Drop the rows"),
        ([1.0, np.inf], {}, TextError, "finite numbers"),
        (["1", "2"], {}, TextError, "number 0 is no number to learn"),
        ([True, False], {}, TextError, "number 0 is no number to learn"),
        ([1e300, 1.0], {}, ConfigError, "fit into float32"),
        ([1, 2], {"class_weight": "balanced"}, ConfigError, "no classes to weigh"),
        ([1, 2], {"validation_data": (["c"], ["z"])}, TextError, "validation labels: number 0"),
        ([], {}, ConfigError, "no labels"),
    ],
)
def test_a_regression_refuses_before_it_loads_a_model(y, options, error, message):
    with pytest.raises(error, match=message):
        TextClassifier("no-such-model", task="regress").fit(["a", "b"][: len(y)], y, **options)


def test_it_comes_back_equal_from_disk(fitted, regressor, tmp_path):
    for tuned, rows in ((fitted, TEXTS), (regressor, PAIRS)):
        folder = tuned.save(tmp_path / tuned.task)
        again = TextClassifier.load(folder)
        np.testing.assert_allclose(again.decision_function(rows), tuned.decision_function(rows), rtol=1e-4, atol=1e-5)
        assert again.get_params() == {**tuned.get_params(), "model": again.model} and again.history_ == tuned.history_
        other = lbzoo.SentimentClassifier(folder)
        np.testing.assert_allclose(other.decision_function(rows), tuned.decision_function(rows), rtol=1e-4, atol=1e-5)
        assert other.task == tuned.task and lbzoo.load(folder).card["pool"] == "pooled"
    with pytest.raises(TextError, match="pairs of texts are needed"):
        lbzoo.SentimentClassifier(folder).predict(["good"])


def test_another_answer_than_when_it_was_saved_is_refused(regressor, tmp_path):
    from tests.test_classifier_file import rewrite

    folder = regressor.save(tmp_path / "mine")
    rewrite(folder, "classifier.json", lambda values: values["expected"]["texts"][1].reverse())
    with pytest.raises(lbzoo.errors.CheckpointError, match=r"does not answer as it did .* number \d+\.\d{4}"):
        TextClassifier.load(folder)


def test_in_scikit_learns_hands():
    assert cross_val_score(quick(), TEXTS[:40], LABELS[:40], cv=2).shape == (2,)
    whole = [round(number) for number in NUMBERS]  # would be stratified as classes, were it taken for a classifier
    found = cross_val_score(quick(task="regress"), pd.DataFrame(PAIRS), whole, cv=2)
    assert found.shape == (2,) and np.isfinite(found).all()
    assert is_classifier(quick()) and is_regressor(quick(task="regress")) and not is_classifier(quick(task="regress"))


@pytest.mark.slow
def test_in_scikit_learns_hands_with_processes(tmp_path):
    folder = str(small_bert().save_pretrained(tmp_path / "base"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # joblib's, on workers that are slow to start
        search = GridSearchCV(quick(folder), {"pool": ["pooled", "mean"]}, cv=2, n_jobs=2, error_score="raise")
        search.fit(PAIRS, [number > 1000 for number in NUMBERS])
    assert search.best_params_["pool"] in ("pooled", "mean") and search.predict(PAIRS).dtype == bool
