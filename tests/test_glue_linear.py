"""`python -m training.glue_linear` on made-up tasks: linear models on frozen features and on TF-IDF."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse
from sklearn.dummy import DummyClassifier

from lbzoo import checkpoint
from lbzoo.transfer.glue import TASKS
from lbzoo.transfer.glue_files import read_split
from tests.glue_folder import made_glue, write_rows
from tests.order_task import small_model
from training import glue_linear
from training.glue_data import read_data
from training.glue_linear import Inputs, TfidfOfTexts, columns, fitted, joined
from training.glue_summary import MARKDOWN_HEAD


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with an mLSTM of 16 units."""
    return str(checkpoint.save(small_model(), tmp_path_factory.mktemp("glue") / "small"))


@pytest.fixture
def measure(tmp_path, capsys):
    """Run the command in one output folder: (status, results or None, standard output, standard error)."""

    def measure(features, task, *more, train=24, data=None):
        data = made_glue(tmp_path / "data", task, train) if data is None else data
        options = ["--features", features, "--task", task, "--data", data, "--output", tmp_path / "out"]
        status = glue_linear.main([*map(str, options), *map(str, more)])
        path = tmp_path / "out" / "results.json"
        return status, json.loads(path.read_text()) if path.exists() else None, *capsys.readouterr()

    return measure


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("task", ["cola", "sst2", "mrpc", "rte", "wnli"])
def test_words_that_say_the_label_are_learnt_from_tfidf(measure, task, tmp_path):
    status, found, out, _ = measure("tfidf", task, "--seeds", 1)
    assert status == 0 and found["system"] == "tfidf" and found["model"] is None
    for metric in TASKS[task].metrics:  # the made-up texts say "good" or "bad"
        assert found["dev"]["dev"][metric]["values"] == [1]
    head, _, row = out.splitlines()
    assert head == MARKDOWN_HEAD.splitlines()[0] and row.startswith(f"| {TASKS[task].folder} | TF-IDF, linear | 24 |")
    assert lines(tmp_path / "out" / "row.md")[-1] == row and " | 1 | - | " in row
    answers = [line.split("\t")[1] for line in lines(tmp_path / "out" / TASKS[task].submission["test"])[1:]]
    assert answers == [TASKS[task].in_files[i % 2] for i in range(6)]


def test_scores_are_learnt_by_a_ridge(measure, tmp_path):
    status, found, _, _ = measure("tfidf", "stsb", "--seeds", 1)
    assert status == 0 and found["dev"]["dev"]["pearson"]["median"] > 0.98
    rows = [float(line.split("\t")[1]) for line in lines(tmp_path / "out" / "STS-B.tsv")[1:]]
    assert len(rows) == 6 and all(0 <= value <= 5 for value in rows)


def test_mnli_has_two_dev_splits_and_three_files(measure, tmp_path):
    status, found, out, _ = measure("tfidf", "mnli", "--seeds", 1)
    assert status == 0 and list(found["dev"]) == ["dev_matched", "dev_mismatched"]
    assert "on dev_matched<br>accuracy" in out
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"):
        assert {line.split("\t")[1] for line in lines(tmp_path / "out" / name)[1:]} <= set(TASKS["mnli"].labels)


@pytest.mark.parametrize("task", ["sst2", "stsb"])
def test_a_checkpoint_is_read_frozen(measure, model, task, tmp_path):
    status, found, out, err = measure(model, task, "--seeds", 2)
    assert status == 0 and found["system"] == "frozen" and found["model"] == "small"
    assert "| `small`, frozen, linear | 24 |" in out and err.count(f"{task} seed ") == 2
    assert str(tmp_path) not in (tmp_path / "out" / "results.json").read_text()
    command = f"python -m training.glue_linear --features small --task {task} --data DATA --output OUTPUT --seeds 2"
    assert found["command"] == command


def test_the_same_seed_gives_the_same_figures_whatever_ran_before(measure, model):
    first = measure(model, "rte", "--seeds", 2)[1]["runs"]
    again = measure(model, "rte", "--seeds", 2)[1]["runs"]
    assert [run["seed"] for run in first] == [1, 2]
    assert [{**run, "minutes": 0} for run in first] == [{**run, "minutes": 0} for run in again]


def test_features_are_left_as_they_were_read(model, tmp_path):
    """The second seed must not stand on what the first one made of them."""
    data = read_data(TASKS["rte"], str(made_glue(tmp_path, "rte")))
    inputs = Inputs(model, data)
    before = {name: rows.copy() for name, rows in inputs.rows.items()}
    glue_linear.run(inputs, data, 1)
    for name, rows in inputs.rows.items():
        np.testing.assert_array_equal(rows, before[name])


def test_features_of_a_pair_are_both_texts_and_how_they_differ():
    u, v = np.array([[1.0, 2.0]]), np.array([[3.0, 0.5]])
    wanted = [[1, 2, 3, 0.5, 2, 1.5, 3, 1]]
    assert joined([u, v]).tolist() == wanted and joined([u]) is u
    sparse = joined([scipy.sparse.csr_matrix(u), scipy.sparse.csr_matrix(v)])
    assert scipy.sparse.issparse(sparse) and sparse.toarray().tolist() == wanted
    assert columns([("a", "b"), ("c", "d")]) == [["a", "c"], ["b", "d"]] and columns(["a", "b"]) == [["a", "b"]]


def test_tfidf_knows_words_of_both_texts_and_pairs_of_words():
    made = TfidfOfTexts().fit([("a stone", "the road"), ("a road", "!")])
    assert {"a", "a stone", "the road", "!"} <= set(made.vectorizer_.get_feature_names_out())
    words = len(made.vectorizer_.vocabulary_)
    assert made.transform([("unknown", "a stone")]).shape == (1, 4 * words)
    assert TfidfOfTexts().fit(["a stone", "b"]).transform(["c"]).nnz == 0


def test_dev_and_test_have_no_part_in_the_choice(model, tmp_path, monkeypatch):
    """The penalty and the fit see train alone."""
    data = read_data(TASKS["mrpc"], str(made_glue(tmp_path, "mrpc")))
    inputs, seen = Inputs("tfidf", data), []
    real = TfidfOfTexts.transform

    def transform(self, texts):
        seen.extend(texts)
        return real(self, texts)

    monkeypatch.setattr(TfidfOfTexts, "transform", transform)
    inputs.rows = {"train": data.train.texts}
    fitted(inputs, data.train, 1)
    assert set(seen) == set(data.train.texts)


@pytest.mark.parametrize("task", ["sst2", "stsb"])
def test_the_strongest_penalty_is_taken_where_all_are_equally_good(task, tmp_path, monkeypatch):
    data = read_data(TASKS[task], str(made_glue(tmp_path, task)))
    monkeypatch.setattr(glue_linear, "_merit", lambda task: lambda model, rows, labels: 0.5)
    assert fitted(Inputs("tfidf", data), data.train, 1)[1] == pytest.approx(min(glue_linear.C_OF_TFIDF))


@pytest.mark.parametrize(
    "more, message",
    [
        (("--seeds", 0), "--seeds must be at least 1. Received: 0"),
        (("--rows", 3), "cross-validation needs two rows of each label. Received: 3 rows, 1 of the rarest label"),
    ],
)
def test_options_that_make_no_run_are_one_error(measure, more, message):
    status, found, out, err = measure("tfidf", "rte", *more)
    assert status == 1 and found is None and out == ""
    assert message in err and err.splitlines()[-1].startswith("glue_linear: error: ")


def test_an_output_that_cannot_be_used_is_refused_before_any_work(measure, tmp_path, monkeypatch):
    monkeypatch.setattr(glue_linear, "Inputs", None)
    (tmp_path / "out").write_text("")
    assert measure("tfidf", "rte")[0] == 1
    (tmp_path / "out").unlink()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("{}")
    status, found, _, err = measure("tfidf", "rte")
    assert status == 1 and found is None and "has the runs of training.finetune_glue" in err


def test_results_of_something_else_are_not_overwritten(measure, tmp_path):
    assert measure("tfidf", "rte", "--seeds", 1)[0] == 0
    kept = (tmp_path / "out" / "results.json").read_bytes()
    status, _, _, err = measure("tfidf", "wnli", "--seeds", 1)
    assert status == 1 and "holds runs with other options. Received: task was 'rte', is 'wnli'" in err
    assert (tmp_path / "out" / "results.json").read_bytes() == kept


@pytest.mark.parametrize("pair", [False, True])
def test_blank_texts_are_one_error_of_tfidf(measure, tmp_path, pair):
    task = TASKS["rte" if pair else "sst2"]
    folder = made_glue(tmp_path / "data", task.name)
    rows = [line.split("\t") for line in lines(folder / task.folder / "train.tsv")]
    blank = [[" \u3000" if name in task.texts else cell for name, cell in zip(rows[0], row)] for row in rows[1:]]
    write_rows(folder / task.folder / "train.tsv", [rows[0], *blank])
    status, found, _, err = measure("tfidf", task.name, "--seeds", 1, data=folder)
    assert status == 1 and found is None
    assert err.splitlines()[-1].startswith("glue_linear: error: TF-IDF needs words to learn. Received: ")


def test_a_model_no_better_than_the_commonest_label_is_told(measure, monkeypatch):
    constant = DummyClassifier(strategy="constant", constant="entailment")
    monkeypatch.setattr(
        glue_linear, "fitted", lambda inputs, train, seed: (constant.fit(train.texts, train.labels), 1.0)
    )
    status, found, _, err = measure("tfidf", "rte", "--seeds", 1)
    assert status == 0 and found["no_better_than_majority"] == [1]
    assert "WARNING: no better than always giving the commonest label: 1 of 1 seeds (1)" in err


def test_there_are_no_more_folds_than_rows_of_a_label(tmp_path):
    split = read_split(TASKS["rte"], made_glue(tmp_path, "rte"), "train")
    assert glue_linear._folds(split) == 5 and glue_linear._folds(split.take([0, 1, 2, 3])) == 2
