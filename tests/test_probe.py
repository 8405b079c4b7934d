"""The probe: OpenAI's protocol, labels that come back unchanged, strict files."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from lbzoo.errors import ConfigError, TextError
from lbzoo.transfer.labels import as_label_array, label_list
from lbzoo.transfer.probe import C_GRID, Probe, fit_probe, hold_out
from lbzoo.transfer.single_unit import best_single_unit


def made_up(rows=300, width=20, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, width)).astype(np.float32)
    scores = features[:, :classes] + 0.5 * rng.standard_normal((rows, classes)).astype(np.float32)
    return features, scores.argmax(axis=1)


def fitted(names=("negative", "positive"), **options):
    features, targets = made_up(classes=len(names))
    labels = [names[t] for t in targets]
    return fit_probe(features[:200], labels[:200], features[200:], labels[200:], **options), features, labels


def test_follows_the_protocol_of_radford_et_al():
    probe, features, labels = fitted()
    old = "penalty" in LogisticRegression().get_params() and LogisticRegression().penalty == "l2"
    l1 = {"penalty": "l1"} if old else {"l1_ratio": 1}
    train, dev, y = features[:200], features[200:], np.array(labels)
    accuracies = []
    for i, C in enumerate(2.0 ** np.arange(-8, 1)):
        model = LogisticRegression(C=C, solver="liblinear", random_state=42 + i, **l1).fit(train, y[:200])
        accuracies.append(model.score(dev, y[200:]))
    C = (2.0 ** np.arange(-8, 1))[int(np.argmax(accuracies))]
    model = LogisticRegression(C=C, solver="liblinear", random_state=51, **l1).fit(train, y[:200])
    assert C_GRID == tuple(2.0 ** np.arange(-8, 1))
    assert probe.C == C
    assert probe.dev_accuracy == dict(zip(C_GRID, accuracies))
    assert probe.nonzero == np.count_nonzero(model.coef_)
    np.testing.assert_array_equal(probe.coef, model.coef_.astype(np.float32))
    np.testing.assert_array_equal(probe.intercept, model.intercept_.astype(np.float32))
    np.testing.assert_array_equal(probe.predict(dev), model.predict(dev))
    np.testing.assert_allclose(probe.predict_proba(dev), model.predict_proba(dev), atol=1e-6)
    np.testing.assert_allclose(probe.decision_function(dev), model.decision_function(dev), atol=1e-5)
    assert probe.score(dev, labels[200:]) == model.score(dev, y[200:])


def test_a_tie_goes_to_the_smallest_C():
    features = np.array([[-1.0], [1.0]] * 50, np.float32) * 100
    probe = fit_probe(features, [0, 1] * 50, features, [0, 1] * 50)
    assert set(probe.dev_accuracy.values()) == {1.0}
    assert probe.C == 2**-8


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:Inconsistent values:UserWarning")
def test_both_spellings_of_l1_give_the_same_weights():
    features, targets = made_up()
    with pytest.MonkeyPatch.context() as patch:
        ours = fit_probe(features, targets, features, targets)
        import lbzoo.transfer.probe as module

        def old_spelling(C, seed, max_iter, classes):
            return LogisticRegression(penalty="l1", C=C, solver="liblinear", random_state=seed, max_iter=max_iter)

        patch.setattr(module, "_estimator", old_spelling)
        try:
            theirs = fit_probe(features, targets, features, targets)
        except (TypeError, ValueError):
            pytest.skip("this scikit-learn no longer knows penalty='l1'")
    np.testing.assert_array_equal(ours.coef, theirs.coef)
    assert ours.dev_accuracy == theirs.dev_accuracy


def test_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted()
        fitted(names=("a", "b", "c"))


def test_three_classes():
    probe, features, labels = fitted(names=("a", "b", "c"))
    assert probe.coef.shape == (3, 20) and probe.classes == ["a", "b", "c"]
    proba = probe.predict_proba(features)
    assert proba.shape == (300, 3) and proba.dtype == np.float32
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    assert (np.array(probe.classes)[proba.argmax(axis=1)] == probe.predict(features)).all()
    assert probe.score(features, labels) > 0.7
    assert probe.nonzero == np.count_nonzero(probe.coef)


def test_softmax_is_another_way_from_scores_to_probabilities():
    scores = np.float32([[1, 2, 4], [-90, 0, 90]])
    probe = Probe(np.eye(3), np.zeros(3), ["a", "b", "c"], link="softmax")
    shares = np.exp(scores.astype(float) - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probe.predict_proba(scores), shares / shares.sum(axis=1, keepdims=True), atol=1e-6)
    assert (
        abs(probe.predict_proba(scores) - dataclasses.replace(probe, link="logistic").predict_proba(scores)).max()
        > 0.01
    )
    two = Probe([[1, 0]], [0.5], ["a", "b"])
    np.testing.assert_array_equal(
        two.predict_proba(scores[:, :2]), dataclasses.replace(two, link="softmax").predict_proba(scores[:, :2])
    )


def test_probabilities_hold_at_the_ends():
    probe = Probe([[1.0], [2.0], [3.0]], [0, 0, 0], ["a", "b", "c"])
    for value in (-1e30, -1e5, 0.0, 1e5, 1e30):
        row = probe.predict_proba([[value]])
        assert np.isfinite(row).all() and row.sum() == pytest.approx(1)
    two = Probe([[1.0]], [0], [False, True])
    np.testing.assert_array_equal(two.predict_proba([[-1e4], [1e4], [0]]), [[1, 0], [0, 1], [0.5, 0.5]])


def test_a_row_alone_scores_as_it_does_in_company():
    probe, features, _ = fitted()
    together = probe.decision_function(features)
    alone = np.concatenate([probe.decision_function(row[None]) for row in features])
    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_most_useful_units():
    probe = Probe([[0.5, 0, -3, 1]], [0], [0, 1], spread=[1, 100, 1, 10])
    assert probe.most_useful_units() == [(3, 10.0), (2, -3.0), (0, 0.5)]
    assert probe.most_useful_units(1) == [(3, 10.0)]
    assert probe.most_useful_units(1, features=[[0, 0, 0, 0], [0, 0, 2, 0]]) == [(2, -3.0)]
    assert dataclasses.replace(probe, spread=None).most_useful_units(1) == [(2, -3.0)]
    three = Probe([[1, 0], [0, -2], [0, 0]], [0] * 3, [0, 1, 2])
    assert three.most_useful_units() == [(1, 2.0), (0, 1.0)]
    with pytest.raises(ConfigError, match="n must be a positive integer"):
        probe.most_useful_units(0)


def test_fit_records_the_spread_of_training_data():
    probe, features, _ = fitted()
    np.testing.assert_allclose(probe.spread, features[:200].std(axis=0), rtol=1e-5)
    assert probe.most_useful_units(2)[0][0] in (0, 1)


def brute_force(features, labels):
    best = 0.0
    for column in features.T:
        for threshold in np.concatenate([[-np.inf], column]):
            right = ((column > threshold) == labels).mean()
            best = max(best, right, 1 - right)
    return best


@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 5), st.booleans())
@settings(max_examples=50, deadline=None)
def test_best_single_unit_is_the_best(seed, rows, width, ties):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, width)).astype(np.float32)
    features = np.round(features) if ties else features
    labels = rng.permutation(np.arange(rows) % 2).astype(bool)
    single = best_single_unit(features, labels)
    assert single.accuracy == pytest.approx(brute_force(features, labels))
    assert single.score(features, labels) == pytest.approx(single.accuracy)
    assert single.classes == (False, True)


def test_best_single_unit_in_blocks(monkeypatch):
    features, targets = made_up(rows=3000, width=2000)
    features[:, 1777] = targets * 2 - 1
    single = best_single_unit(features, targets)
    assert (single.unit, single.polarity, single.threshold, single.accuracy) == (1777, 1, 0.0, 1.0)
    flipped = best_single_unit(-features, targets)
    assert (flipped.unit, flipped.polarity) == (1777, -1)
    with pytest.raises(ConfigError, match="two classes"):
        best_single_unit(features, np.arange(3000) % 3)


NAMES = st.one_of(
    st.lists(st.text(max_size=8), min_size=2, max_size=5, unique=True),
    st.lists(st.integers(), min_size=2, max_size=5, unique=True),
    st.just([False, True]),
    st.lists(st.integers(-(2**40), 2**40).map(float), min_size=2, max_size=4, unique=True),
    st.lists(st.text(st.characters(codec=None), max_size=4), min_size=2, max_size=4, unique=True),
)


@given(NAMES)
@settings(max_examples=100, deadline=None)
def test_labels_come_back_as_they_went_in(tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("probe")
    rows = 1 if len(names) == 2 else len(names)
    coef = np.eye(rows, max(rows, 2), dtype=np.float32)
    probe = Probe(coef, np.zeros(rows), names, C=0.25)
    probe.save(folder)
    again = Probe.load(folder)
    assert again == probe
    assert [(type(n), n) for n in again.classes] == [(type(n), n) for n in names]
    answers = again.predict(np.concatenate([np.eye(coef.shape[1]), -np.eye(coef.shape[1])])).tolist()
    assert {(type(a), a) for a in answers} <= {(type(n), n) for n in names}


@pytest.mark.parametrize(
    "given, wanted",
    [
        (np.array(["b", "a"]), ["b", "a"]),
        (np.array(["b", "a"], object), ["b", "a"]),
        ([np.str_("b"), np.str_("a")], ["b", "a"]),
        (np.array([3, 1], np.int8), [3, 1]),
        ([np.int64(3), 1], [3, 1]),
        (np.array([True, False]), [True, False]),
        ((x for x in [1.0, np.float32(0)]), [1.0, 0.0]),
    ],
)
def test_label_list_gives_python_scalars(given, wanted):
    names = label_list(given)
    assert names == wanted and list(map(type, names)) == list(map(type, wanted))


def test_label_arrays_keep_what_plain_dtypes_would_lose():
    for names in (["a\0", "b"], [2**70, 1], [2**63, -1]):
        assert as_label_array(names).tolist() == names
    assert as_label_array(["a", "b"]).dtype.kind == "U"


@pytest.mark.parametrize(
    "labels, message",
    [
        ("positive", "must be a list"),
        (3, "must be a list"),
        ([0, None], "number 1 is no label. Received: NoneType None. Drop"),
        ([0.0, float("nan")], "number 1 is no label. Received: float nan. Drop"),
        ([0.25, 0.5], "number 0 is no label"),
        ([b"a", b"b"], "number 0 is no label"),
        ([0, "a"], "one type. Received: int 0, str 'a'"),
        ([True, 1], "one type. Received: bool True, int 1"),
        (np.zeros((2, 2)), "one dimension"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(TextError, match=message):
        label_list(labels)


def with_nan(features):
    features = features.copy()
    features[7, 3] = np.nan
    return features


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, y: (x[:0], y[:0], x, y), "train features have no rows"),
        (lambda x, y: (x, y, x[:0], y[:0]), "dev features have no rows"),
        (lambda x, y: (x, y[:-1], x, y), "train features and train labels differ in length. Received: 300 and 299"),
        (lambda x, y: (x, y, x[1:], y), "dev features and dev labels differ"),
        (lambda x, y: (with_nan(x), y, x, y), "train features must be finite.*in 1 rows, first in 7"),
        (lambda x, y: (x, y, with_nan(x), y), "dev features must be finite"),
        (lambda x, y: (x, y * 0, x, y), "two or more classes. Received: only 0"),
        (lambda x, y: (x, y, x, y + 1), "not among the classes .0, 1.. Received: 2"),
        (lambda x, y: (x, y, x[:, 1:], y), r"dev features must be numbers of shape \[rows, 20\]"),
        (lambda x, y: (x[0], y, x, y), "train features must be numbers of shape"),
        (lambda x, y: (x.astype(object), y, x, y), "dtype object"),
    ],
)
def test_fit_refuses(change, message):
    with pytest.raises(ConfigError, match=message):
        fit_probe(*change(*made_up()))


def test_refit_all_uses_every_row():
    features, targets = made_up()
    halves = (features[:150], targets[:150], features[150:], targets[150:])
    whole, train = fit_probe(*halves, refit="all"), fit_probe(*halves)
    assert whole.C == train.C and not np.array_equal(whole.coef, train.coef)
    with pytest.raises(ConfigError, match="refit must be"):
        fit_probe(*halves, refit="dev")


def test_hold_out_is_stratified_and_repeatable():
    labels = ["a"] * 50 + ["b"] * 12 + ["c"]
    kept, held = hold_out(labels)
    assert sorted([*kept, *held]) == list(range(63))
    assert [labels[row] for row in held].count("a") == 5
    assert [labels[row] for row in held].count("b") == 1
    assert "c" not in [labels[row] for row in held]
    np.testing.assert_array_equal(hold_out(labels)[1], held)
    assert not np.array_equal(hold_out(labels, seed=1)[1], held)
    with pytest.raises(ConfigError, match="fraction"):
        hold_out(labels, fraction=1.0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"coef": [[1.0, np.nan]]}, "coef must be finite"),
        ({"intercept": [np.inf]}, "intercept must be finite"),
        ({"intercept": [0, 0]}, r"intercept \[1\]"),
        ({"coef": [[1.0, 2], [1, 2]]}, r"coef \[1, features\]"),
        ({"coef": [["a", "b"]]}, "array of numbers"),
        ({"classes": ["a"]}, "two or more different classes"),
        ({"classes": ["a", "a"]}, "two or more different classes"),
        ({"classes": ["a", "b", "c"]}, "3 classes"),
        ({"state": "c"}, "state must be one of cell, hidden"),
        ({"pool": None}, "pool must be one of"),
        ({"tanh": 1}, "tanh must be true or false"),
        ({"C": 0}, "C must be a positive number"),
        ({"C": "1"}, "C must be a positive number"),
        ({"meta": []}, "meta must be a dict"),
        ({"spread": [1, 2, 3]}, "spread must be"),
    ],
)
def test_a_probe_checks_itself(options, message):
    with pytest.raises(ConfigError, match=message):
        Probe(**{"coef": [[1.0, 2.0]], "intercept": [0.0], "classes": ["a", "b"], **options})


def test_predict_refuses_what_does_not_fit():
    probe = Probe([[1.0, 2.0]], [0.0], ["a", "b"])
    for features in ([[1.0]], [1.0, 2.0], [["x", "y"]], [[np.nan, 1]], np.zeros((0, 2))):
        with pytest.raises(ConfigError):
            probe.predict(features)
    with pytest.raises(ConfigError, match="differ in length"):
        probe.score([[1.0, 2.0]], ["a", "b"])


def test_a_probe_predicts_without_scikit_learn(tmp_path):
    Probe([[1.0, 2, 3]], [0.0], ["a", "b"]).save(tmp_path)
    code = (
        "import sys; from lbzoo.transfer.probe import Probe; p = Probe.load(sys.argv[1]);"
        "p.predict([[1, 2, 3]]); p.predict_proba([[1, 2, 3]]);"
        "assert not {'sklearn', 'tensorflow', 'scipy', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
