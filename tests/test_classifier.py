"""TextClassifier on a tiny model: it learns, keeps the best, gives the same for the same seed, and never NaN."""

from __future__ import annotations

import io
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score

import lbzoo
from lbzoo.errors import ConfigError, NotFittedError, TextError, UnknownModelError
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.transfer import finetuning
from lbzoo.transfer.classifier import TextClassifier
from tests.order_task import SETTINGS, small_model, texts_and_labels

TEXTS, LABELS = texts_and_labels(160)


@pytest.fixture(scope="module")
def base():
    return small_model(name="base", license="Apache-2.0")


@pytest.fixture(scope="module")
def fitted(base):
    return TextClassifier(base, **SETTINGS).fit(TEXTS, LABELS)


def quick(base, **options):
    """The head alone: what needs no training takes no time."""
    return TextClassifier(base, **{**SETTINGS, "unfreeze": "head", **options})


def weights(model):
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


def test_it_learns_what_the_frozen_model_cannot_tell(base, fitted):
    assert fitted.history_[0]["trained"] == "head" and fitted.history_[0]["held_out_accuracy"] < 0.7
    assert fitted.score(*texts_and_labels(200, seed=9)) > 0.95
    assert fitted.best_epoch_ > 0 and fitted.history_[-1]["loss"] < 0.1
    assert lbzoo.TextClassifier is TextClassifier and TextClassifier().model == DEFAULT_MODEL


def test_the_model_that_was_given_stays_as_it_is(base, fitted):
    for name, value in weights(small_model()).items():
        np.testing.assert_array_equal(weights(base)[name], value)
    assert not np.array_equal(weights(fitted.model_)["wh"], weights(base.folded())["wh"])


def test_the_weights_of_the_best_epoch_are_kept(base):
    """Labels of chance: the head's luck on held-out data is not to be had by training on others."""
    chance = np.random.default_rng(1).integers(0, 2, 64)
    held = texts_and_labels(24, seed=5)[0], np.random.default_rng(2).integers(0, 2, 24)
    tuned = TextClassifier(base, **{**SETTINGS, "epochs": 9, "patience": 2}).fit(
        TEXTS[:64], chance, validation_data=held
    )
    found = [(row["held_out_accuracy"], -row["held_out_loss"]) for row in tuned.history_]
    assert tuned.best_epoch_ == found.index(max(found)) and len(found) == tuned.best_epoch_ + 3 < 10
    assert tuned.score(*held) == pytest.approx(found[tuned.best_epoch_][0])
    answers = tuned.predict_proba(held[0])[np.arange(24), held[1]]
    assert -np.log(answers).mean() == pytest.approx(-found[tuned.best_epoch_][1], abs=1e-5)


def test_the_same_seed_gives_the_same_weights_and_another_does_not(base):
    options = {**SETTINGS, "epochs": 1, "dropout": 0.2}
    first, second, other = (
        TextClassifier(base, **options, random_state=seed).fit(TEXTS[:48], LABELS[:48]) for seed in (7, 7, 8)
    )
    for name, value in weights(first.model_).items():
        np.testing.assert_array_equal(value, weights(second.model_)[name])
    np.testing.assert_array_equal(first.predict_proba(TEXTS), second.predict_proba(TEXTS))
    assert not np.array_equal(first.predict_proba(TEXTS), other.predict_proba(TEXTS))


def test_weights_are_unfrozen_from_the_head_down(base):
    def changed(tuned):
        start = weights(base.folded())
        return {name for name, value in weights(tuned.model_).items() if not np.array_equal(value, start[name])}

    once = {**SETTINGS, "epochs": 1, "validation_fraction": 0}
    assert changed(quick(base).fit(TEXTS, LABELS)) == set()
    recurrent = {"wx", "wh", "wmx", "wmh", "b"}
    assert changed(TextClassifier(base, **{**once, "unfreeze": "gradual"}).fit(TEXTS, LABELS)) == recurrent
    assert changed(TextClassifier(base, **once).fit(TEXTS, LABELS)) == recurrent | {"embedding"}
    two = TextClassifier(base, **{**SETTINGS, "epochs": 2, "unfreeze": "gradual"}).fit(TEXTS, LABELS)
    assert [row["trained"] for row in two.history_] == ["head", "head and 1 of 2 groups", "head and 2 of 2 groups"]


def test_the_language_model_loss_trains_the_output_layer(base):
    options = {**SETTINGS, "epochs": 2, "language_model_weight": 0.5, "validation_fraction": 0}
    tuned = TextClassifier(base, **options).fit(TEXTS, LABELS)
    assert not np.array_equal(weights(tuned.model_)["out_w"], weights(base)["out_w"])
    assert tuned.history_[1]["loss"] > tuned.history_[2]["loss"] > 1  # half of some nats for each of a few letters
    silent = small_model(output=False)
    with pytest.raises(ConfigError, match="language_model_weight needs a model with an output layer"):
        TextClassifier(silent, **options).fit(TEXTS, LABELS)
    assert quick(silent).fit(TEXTS, LABELS).predict(["xy"]).shape == (1,)


@pytest.mark.parametrize(
    "names", [("no", "yes"), (0, 1), (-3, 7), (False, True), (1.0, 2.0), (np.int8(1), np.int8(2)), ("é\ud800", "日")]
)
def test_labels_come_back_as_they_went_in(base, names):
    labels = texts_and_labels(32, names=names)[1]
    tuned = quick(base).fit(TEXTS[:32], labels)
    plain = [getattr(name, "item", lambda name=name: name)() for name in names]
    assert tuned.classes_.tolist() == sorted(plain)
    answers = tuned.predict(TEXTS[:8]).tolist()
    assert set(answers) <= set(plain) and type(answers[0]) is type(plain[0])
    array = quick(base).fit(np.array(TEXTS[:32], object), np.array(labels)).predict(TEXTS[:8])
    assert array.tolist() == answers


def test_three_labels(base):
    texts = [f"{word} {i}" for i in range(20) for word in ("red", "green", "blue")]
    tuned = TextClassifier(base, **{**SETTINGS, "epochs": 8}).fit(texts, ["red", "green", "blue"] * 20)
    assert tuned.classes_.tolist() == ["blue", "green", "red"] and tuned.probe_.link == "softmax"
    proba = tuned.predict_proba(["a red one", ""])
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    assert proba.shape == tuned.decision_function(["a", "b"]).shape == (2, 3)
    assert tuned.score(texts, ["red", "green", "blue"] * 20) > 0.9


@pytest.mark.parametrize(
    ("X", "y", "options", "error", "message"),
    [
        (["a", "b"], ["x", "x"], {}, ConfigError, "labels of two classes or more. Received: only 'x'"),
        (["a", "b"], ["x", None], {}, TextError, "number 1 is no label"),
        (["a", "b"], [0.0, np.nan], {}, TextError, "number 1 is no label"),
        (["a", "b"], [0.5, 1], {}, TextError, "a whole float"),
        (["a", None], ["x", "y"], {}, TextError, "text 1 is not str"),
        ("ab", ["x", "y"], {}, TextError, "list of texts"),
        (["a"], ["x", "y"], {}, ConfigError, "differ in length"),
        ([], [], {}, ConfigError, "no labels"),
        (["a", "b"], ["x", "y"], {"sample_weight": [1, 0]}, ConfigError, "only 'x'"),
        (["a", "b"], ["x", "y"], {"validation_data": (["c"], ["z"])}, ConfigError, "validation labels that are not"),
        (["a", "b"], ["x", "y"], {"class_weight": {"z": 2}}, ConfigError, "not among the classes"),
    ],
)
def test_fit_refuses_before_it_loads_a_model(X, y, options, error, message):
    classifier = TextClassifier("no-such-model")
    with pytest.raises(error, match=message):
        classifier.fit(X, y, **options)
    assert not hasattr(classifier, "probe_")


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 1.5},
        {"patience": True},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"unfreeze": "some"},
        {"weight_decay": 1},
        {"task": "rank"},
        {"max_length": 64},
        {"pool": "mean"},
        {"validation_fraction": 1},
        {"validation_fraction": "0.1"},
        {"window": 0},
        {"language_model_weight": -1},
        {"dropout": 1},
        {"dtype": "float16"},
        {"random_state": "seed"},
        {"random_state": -1},
    ],
    ids=str,
)
def test_options_that_cannot_be_honoured(base, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TextClassifier(base, **wrong).fit(TEXTS, LABELS)


def test_models_that_are_none(tmp_path):
    with pytest.raises(UnknownModelError):
        TextClassifier("mlstm-513-reviews").fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match="fine-tuning needs .* Received: int"):
        TextClassifier(3).fit(TEXTS, LABELS)


def test_small_and_odd_sets_of_texts_are_never_nan(base):
    """Fewer rows than a batch, one row too many for one, texts without a byte, one that is far longer than the rest."""
    odd = ["", " ", b"", b"\xff\xfe", "\ud800", "x" * 5000, "😀"]
    for rows in ([*odd], [*odd, *TEXTS[:10]], [b"", ""] * 8 + [b""]):
        labels = [i % 2 for i in range(len(rows))]
        tuned = TextClassifier(base, **{**SETTINGS, "epochs": 2, "window": 16}).fit(rows, labels)
        assert all(np.isfinite(value).all() for value in weights(tuned.model_).values())
        proba = tuned.predict_proba([*rows, "y" * 3000])
        assert np.isfinite(proba).all() and np.isfinite(tuned.history_[-1]["loss"])
    with pytest.warns(UserWarning, match="no text could be held out of 2, one a class") as caught:
        two = TextClassifier(base, **{**SETTINGS, "epochs": 1}).fit(["x", "y"], ["a", "b"])
    assert caught[0].filename == __file__ and two.best_epoch_ == 1 and "held_out_loss" not in two.history_[1]


def test_training_that_goes_wrong_is_not_kept(base):
    held = texts_and_labels(40, seed=4)
    tuned = TextClassifier(base, **{**SETTINGS, "learning_rate": 0.9}).fit(TEXTS[:64], LABELS[:64], None, held)
    assert tuned.score(*held) >= tuned.history_[0]["held_out_accuracy"] - 1e-9
    assert np.isfinite(tuned.predict_proba(TEXTS)).all()


def test_a_loss_that_is_no_number_does_not_keep_the_outcome_from_being_saved():
    story = finetuning._Story(SimpleNamespace(groups=list), None, [])
    for loss in (None, 0.5, float("nan"), float("inf")):
        story.add("head", loss, None)
    assert [row["loss"] for row in story.end().history] == [None, 0.5, None, None]


def test_sample_weights(base):
    """Each text twice, once with either label: the heavier one wins, and only ratios matter."""
    held, twice = texts_and_labels(30, seed=4), TEXTS[:30] * 2
    both = [LABELS[0]] * 30 + [("y", "x")[LABELS[0] == "y"]] * 30
    for heavy in (0, 1):
        weights = [(3, 1)[i // 30 != heavy] for i in range(60)]
        tuned = quick(base).fit(twice, both, weights, held)
        assert set(tuned.predict(twice)) == {both[30 * heavy]}
        scaled = quick(base).fit(twice, both, np.array(weights) * 1e6, held)
        np.testing.assert_allclose(scaled.probe_.coef, tuned.probe_.coef, atol=1e-5)


def test_class_weights_and_weights_of_held_out_texts(base):
    rare = [label if i % 5 else "rare" for i, label in enumerate(LABELS[:60])]
    plain, balanced, given = (
        quick(base).fit(TEXTS[:60], rare, class_weight=value).predict_proba(TEXTS)[:, 0].mean()
        for value in (None, "balanced", {"rare": 20})
    )
    assert plain < balanced < given
    held = texts_and_labels(10, seed=4)
    only = quick(base).fit(TEXTS, LABELS, None, (*held, [1] + [0] * 9))
    assert only.probe_.meta["held_out_rows"] == 1 and only.history_[0]["held_out_accuracy"] in (0, 1)


def test_before_fit(base):
    classifier = TextClassifier(base)
    for ask in (classifier.predict, classifier.predict_proba, classifier.decision_function, classifier.iter_predict):
        with pytest.raises(NotFittedError, match=r"Call fit\(texts, labels\), or TextClassifier.load"):
            ask(["x"])
    with pytest.raises(NotFittedError):
        classifier.save("nowhere")
    assert not hasattr(classifier, "classes_") and is_classifier(classifier)


def test_answers(fitted):
    proba = fitted.predict_proba(TEXTS)
    assert proba.dtype == np.float32 and fitted.predict([]).shape == (0,) and fitted.predict_proba([]).shape == (0, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    assert fitted.predict(TEXTS).tolist() == fitted.classes_[proba.argmax(axis=1)].tolist()
    answers = list(fitted.iter_predict(iter(TEXTS), window=7))
    np.testing.assert_allclose([answer.probabilities for answer in answers], proba, atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(TEXTS[:1]), proba[:1], atol=1e-5)
    for wrong in ("xy", None, ["a", None]):
        with pytest.raises(TextError):
            fitted.predict(wrong)
    with pytest.raises(ConfigError, match="labels must be among"):
        fitted.score(["x"], [1])


def test_a_score_weighs_texts_as_it_is_told(base):
    tuned = quick(base).fit(TEXTS[:20], LABELS[:20])
    first, second = tuned.predict(TEXTS[:2])
    half = [first, "x" if second == "y" else "y"]
    for unit in (1, 3e307):  # the sum of these is beyond float64
        assert tuned.score(TEXTS[:2], half, [3 * unit, unit]) == pytest.approx(0.75)
    for weights in ([0, 0], [1], [1, np.nan], [2, -1], "ab"):
        with pytest.raises(ConfigError, match="weights must be"):
            tuned.score(TEXTS[:2], half, weights)


def test_clone_and_copies_that_travel(base, fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params() and copy.model is base and not hasattr(copy, "probe_")
    there = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(there.predict_proba(TEXTS), fitted.predict_proba(TEXTS), atol=1e-6)
    assert "TextClassifier" in repr(fitted)


def test_random_states(base):
    np.random.seed(3)
    for state in (np.random.RandomState(0), None, np.int64(5)):
        assert quick(base, random_state=state).fit(TEXTS, LABELS).probe_.meta["seed"] >= 0


def test_in_scikit_learns_hands(base):
    assert cross_val_score(quick(base), TEXTS[:40], LABELS[:40], cv=2).shape == (2,)


@pytest.mark.slow
def test_in_scikit_learns_hands_with_processes(base, tmp_path):
    from lbzoo import checkpoint

    folder = str(checkpoint.save(base, tmp_path / "base"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # joblib's, on workers that are slow to start
        search = GridSearchCV(
            TextClassifier(folder, **SETTINGS), {"learning_rate": [1e-4, 3e-2]}, cv=2, n_jobs=2, error_score="raise"
        ).fit(TEXTS, LABELS)
    assert search.best_params_ == {"learning_rate": 3e-2} and search.score(*texts_and_labels(50, seed=8)) > 0.9


def test_the_progress_bar_is_for_terminals(base, capsys, monkeypatch):
    once = TextClassifier(base, **{**SETTINGS, "epochs": 1})
    once.fit(TEXTS[:32], LABELS[:32])
    assert capsys.readouterr() == ("", "")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    once.fit(TEXTS[:32], LABELS[:32])
    import sys

    assert "step" in sys.stderr.getvalue()
