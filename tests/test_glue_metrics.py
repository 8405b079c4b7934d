"""GLUE's metrics against their definitions, and what they say where they have no value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError
from lbzoo.transfer.glue import TASKS
from lbzoo.transfer.glue_metrics import Score, in_public_order, majority_baseline, no_better, score

PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40)


def named(task, rows):
    return [task.labels[row] for row in rows]


@given(PAIRS)
def test_f1_accuracy_and_matthews_are_their_definitions(rows):
    predicted, truth = zip(*rows)
    tp, fp, fn, tn = (sum(row == each for row in rows) for each in ((1, 1), (1, 0), (0, 1), (0, 0)))
    mrpc, cola = TASKS["mrpc"], TASKS["cola"]
    found = score(mrpc, named(mrpc, predicted), named(mrpc, truth))
    assert found.values["accuracy"] == pytest.approx((tp + tn) / len(rows))
    if tp + fp + fn:
        assert found.values["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn)) and not found.undefined
    else:
        assert found.values["f1"] is None and "positive" in found.undefined["f1"] and found.mean is None
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    matthews = score(cola, named(cola, predicted), named(cola, truth))
    if product:
        assert matthews.values["matthews"] == pytest.approx((tp * tn - fp * fn) / product**0.5)
    else:
        assert matthews.values["matthews"] is None and "every row has the same" in matthews.undefined["matthews"]


def test_correlations_are_numpys_and_ranks():
    rng = np.random.default_rng(5)
    truth = np.round(rng.uniform(0, 5, 200), 1)  # with ties
    predicted = truth + rng.normal(size=200)
    found = score(TASKS["stsb"], predicted, truth)
    ranks = [np.array([(v < x).sum() + ((v == x).sum() - 1) / 2 for x in v]) for v in (predicted, truth)]
    assert found.values["pearson"] == pytest.approx(np.corrcoef(predicted, truth)[0, 1])
    assert found.values["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert found.mean == pytest.approx((found.values["pearson"] + found.values["spearman"]) / 2)


@pytest.mark.parametrize(
    "answers, reason",
    [([2.5] * 3, "the same answer"), ([1.0, np.nan, 2.0], "not finite"), ([np.inf, 1.0, 2.0], "not finite")],
)
def test_a_regression_without_a_correlation_says_why(answers, reason):
    found = score(TASKS["stsb"], answers, [1.0, 2.0, 3.0])
    assert found.values == {"pearson": None, "spearman": None}
    assert all(reason in why for why in found.undefined.values()) and len(found.undefined) == 2


def test_names_that_are_not_the_tasks_are_refused():
    with pytest.raises(ConfigError, match="Received: 'LABEL_0'"):
        score(TASKS["rte"], ["LABEL_0"], ["entailment"])
    with pytest.raises(ConfigError, match="Received: 1 answers, 2 rows"):
        score(TASKS["rte"], ["entailment"], ["entailment"] * 2)
    with pytest.raises(ConfigError, match="Received: 0 answers"):
        score(TASKS["rte"], [], [])


def test_the_majority_baseline_is_the_commonest_label_and_a_run_equal_to_it_is_no_better():
    mrpc, truth = TASKS["mrpc"], ["equivalent"] * 3 + ["not_equivalent"]
    baseline = majority_baseline(mrpc, truth)
    assert baseline.values == pytest.approx({"f1": 6 / 7, "accuracy": 0.75})
    assert no_better(score(mrpc, ["equivalent"] * 4, truth), baseline)
    assert not no_better(score(mrpc, truth, truth), baseline)
    assert not no_better(Score({"f1": 0.5, "accuracy": 0.76}), baseline)  # one metric above it is enough


@pytest.mark.parametrize("name, truth", [("cola", ["acceptable", "unacceptable"]), ("stsb", [1.0, 4.0])])
def test_a_metric_without_a_value_is_no_better_than_the_baseline(name, truth):
    task = TASKS[name]
    baseline = majority_baseline(task, truth)
    assert set(baseline.values.values()) == {None}
    assert no_better(baseline, baseline)
    assert not no_better(score(task, truth, truth), baseline)
    assert no_better(score(task, truth[::-1], truth), baseline)  # below 0


def test_scores_of_a_model_with_another_label_order_are_permuted():
    scores = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    found = in_public_order(TASKS["mnli"], scores, ["CONTRADICTION", "entailment", "Neutral"])
    assert found.tolist() == [[0.2, 0.7, 0.1], [0.3, 0.1, 0.6]]
    found = in_public_order(TASKS["rte"], scores[:, :2], ["not entailment", "entailment"])
    assert found.tolist() == [[0.2, 0.1], [0.3, 0.6]]


@pytest.mark.parametrize(
    "names", [["LABEL_0", "LABEL_1", "LABEL_2"], ["entailment", "neutral"], ["entailment"] * 3, [0, 1, 2]]
)
def test_a_model_whose_labels_are_not_the_tasks_is_refused(names):
    with pytest.raises(ConfigError, match="labels are not those of mnli"):
        in_public_order(TASKS["mnli"], np.zeros((2, 3)), names)
