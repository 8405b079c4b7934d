"""Fine-tuning beside transformers on torch runs and prints both sides; how fast and how good is never asserted."""

import re

import numpy as np
import pytest

from benchmarks import glue_crosscheck
from benchmarks.glue_crosscheck import rate, within
from lbzoo.transfer.heads import ClassHead
from tests.glue_folder import made_glue, save_bert


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a BERT of 16 units."""
    return save_bert(tmp_path_factory.mktemp("crosscheck") / "bert")


@pytest.mark.parametrize(
    "task, pool, more",
    [
        ("mrpc", "mean", ["--seeds", "1"]),
        pytest.param("rte", "pooled", ["--seeds", "2", "--same-batches"], marks=pytest.mark.slow),
    ],
)
def test_both_sides_start_from_the_same_scores(task, pool, more, bert, tmp_path, capsys):
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -e '.[benchmark]'")
    data = str(made_glue(tmp_path, task))
    options = ["--task", task, "--data", data, "--model", bert, "--pool", pool, "--epochs", "2", "--batch-size", "8"]
    glue_crosscheck.main([*options, *more])
    out = capsys.readouterr().out
    assert "24 rows of train, 12 of dev, epochs 2, batch 8, " in out and f"pool {pool}, seeds {more[1]}" in out
    assert float(re.search(r"largest difference before +([\d.e+-]+)", out)[1]) < 1e-4
    for side in ("lbzoo", "torch"):
        assert re.search(rf"^  {side}, accuracy +[\d.]+   \([\d.]+ to [\d.]+\)$", out, re.M)
        assert re.search(rf"^  {side}, speed +[\d,.]+ examples/s", out, re.M)
    assert ("lbzoo, F1" in out) == (task == "mrpc")
    assert "within each other" in out and re.search(r"lbzoo over torch +[\d.]+   \(aim: at least 1.3\)", out)


def test_the_first_step_is_not_counted():
    assert rate([(0.0, 8), (100.0, 6), (101.0, 4), (102.0, 0)]) == 5


def test_a_median_lies_within_the_others_or_not():
    assert within([1, 2, 9], [2, 3]) and not within([1, 1.9, 9], [2, 3]) and not within([4], [2, 3])


def test_two_outputs_say_what_one_says():
    head = ClassHead(np.array([[1.0, -2.0, 0.5]], np.float32), np.array([0.25], np.float32))
    made, x = glue_crosscheck._two_outputs(head), np.array([0.3, 0.1, -2])
    scores = x @ made["classifier/kernel"] + made["classifier/bias"]
    assert scores[1] - scores[0] == pytest.approx(x @ head.coef[0] + head.intercept[0])


@pytest.mark.parametrize(
    "more, message",
    [
        (["--seeds", "0"], "--seeds must be at least 1. Received: 0"),
        (["--rows", "0"], "--rows must be at least 1. Received: 0"),
        (["--data", "nowhere"], "train.tsv' does not exist"),
        (["--rows", "8", "--epochs", "1"], "speed is that of all steps but the first. Received: 1 step"),
    ],
)
def test_what_cannot_be_measured_is_one_error(more, message, bert, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(glue_crosscheck.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(glue_crosscheck.importlib.metadata, "version", lambda name: "any")
    options = ["--task", "rte", "--data", str(made_glue(tmp_path, "rte")), "--model", bert, "--pool", "mean"]
    assert glue_crosscheck.main([*options, *more]) == 1
    err = capsys.readouterr().err
    assert message in err and err.splitlines()[-1].startswith("glue_crosscheck: error: ")


def test_what_is_missing_is_skipped_by_name(capsys, monkeypatch):
    monkeypatch.setattr(glue_crosscheck.importlib.util, "find_spec", lambda name: None)
    glue_crosscheck.main(["--data", "x", "--model", "y"])
    assert "glue_crosscheck: skipped, torch and transformers not installed" in capsys.readouterr().out
    monkeypatch.setattr(glue_crosscheck.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(glue_crosscheck.minilm, "weights", lambda: None)
    monkeypatch.delenv("LBZOO_DATA", raising=False)
    glue_crosscheck.main(["--data", "x"])
    assert "skipped, no weights" in capsys.readouterr().out
    glue_crosscheck.main(["--model", "y"])
    assert "skipped, no data" in capsys.readouterr().out
