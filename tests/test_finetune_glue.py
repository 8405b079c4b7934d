"""`python -m training.finetune_glue` on made-up tasks: what it measures, what it writes, and how it goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lbzoo import checkpoint
from lbzoo.errors import ConfigError, TrainingError
from lbzoo.transfer.glue import TASKS
from lbzoo.transfer.glue_files import read_split
from tests.conftest import ROOT
from tests.glue_folder import made_glue, save_bert
from tests.order_task import small_model
from training import finetune_glue, glue_data, glue_runs, glue_summary


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with an mLSTM of 16 units."""
    return str(checkpoint.save(small_model(), tmp_path_factory.mktemp("glue") / "small"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a BERT of 16 units."""
    return save_bert(tmp_path_factory.mktemp("glue") / "bert")


def finetune_in(folder, task, model, *more, data=None, train=24, frozen=True):
    """Run the command with the output folder `out`: (exit status, results or None)."""
    data = made_glue(folder / "data", task, train) if data is None else data
    options = ["--model", model, "--task", task, "--data", str(data), "--output", str(folder / "out")]
    options += ["--unfreeze", "head"] if frozen else []
    status = finetune_glue.main([*options, *map(str, more)])
    path = folder / "out" / "results.json"
    return status, json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def tune(tmp_path, capsys):
    """Run the command in one output folder: (status, results or None, standard output, standard error)."""

    def tune(*arguments, **options):
        found = finetune_in(tmp_path, *arguments, **options)
        return (*found, *capsys.readouterr())

    return tune


TRAINED = ("--epochs", 2, "--batch-size", 8, "--window", 8, "--learning-rates", 0.01)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model):
    """(folder, results) of two seeds that were trained end to end."""
    folder = tmp_path_factory.mktemp("glue")
    status, found = finetune_in(folder, "rte", model, "--seeds", 2, *TRAINED, frozen=False)
    assert status == 0
    return folder, found


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_seeds_are_trained_and_measured_on_dev(trained):
    folder, found = trained
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    for run in found["runs"]:  # all epochs, and dev is only measured
        assert [row["epoch"] for row in run["history"]] == [0, 1, 2] and run["epoch"] == 2
        assert not any(name.startswith("held_out") for row in run["history"] for name in row)
    assert found["runs"][0]["history"] != found["runs"][1]["history"]
    values = [run["splits"]["dev"]["values"]["accuracy"] for run in found["runs"]]
    wanted = {"median": np.mean(values), "lowest": min(values), "highest": max(values), "values": values}
    assert found["dev"]["dev"]["accuracy"] == wanted
    assert found["majority_baseline"] == {"dev": {"accuracy": 0.5}} and found["dev_rows"] == {"dev": 12}
    assert str(folder) not in (folder / "out" / "results.json").read_text()
    assert found["command"] == (
        "python -m training.finetune_glue --model small --task rte --data DATA --output OUTPUT --seeds 2 "
        "--learning-rates 0.01 --epochs 2 --batch-size 8 --window 8"
    )


def test_the_seed_that_is_best_on_dev_is_written_for_the_leaderboard(trained):
    folder, found = trained
    header, *rows = lines(folder / "out" / "RTE.tsv")
    assert header == "index\tprediction" and [row.split("\t")[0] for row in rows] == [str(i) for i in range(6)]
    assert {row.split("\t")[1] for row in rows} <= {"entailment", "not_entailment"}
    best = max(found["runs"], key=lambda run: run["splits"]["dev"]["values"]["accuracy"])
    assert lines(folder / "out" / f"rate-0.01-seed-{best['seed']}" / "RTE.tsv") == [header, *rows]


def test_a_row_of_a_table_is_printed_and_written(tune, model, tmp_path):
    status, _, out, _ = tune("rte", model, "--seeds", 1)
    head, _, row = out.splitlines()
    assert status == 0 and "dev, median" in head and row.startswith("| RTE | `small` | 24 | accuracy ")
    assert lines(tmp_path / "out" / "row.md")[-1] == row


def test_a_reader_that_leaves_early_is_no_error(tune, model, monkeypatch):
    def gone(results):
        raise BrokenPipeError

    monkeypatch.setattr(finetune_glue.glue_output, "show", gone)
    monkeypatch.setattr("lbzoo.console.abandon_stdout", lambda: None)
    status, found, out, err = tune("rte", model, "--seeds", 1)
    assert status == 141 and found["runs"] and out == "" and "error" not in err


def test_a_run_that_has_ended_is_not_run_again_and_a_lost_one_comes_to_the_same_end(
    trained, model, tmp_path, monkeypatch
):
    real, ran = glue_runs.finetune, []

    def counted(encoder, train, held_out, settings, seed, strategy):
        ran.append(seed)
        return real(encoder, train, held_out, settings, seed, strategy)

    monkeypatch.setattr(glue_runs, "finetune", counted)
    shutil.copytree(trained[0] / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "rate-0.01-seed-2")
    status, found = finetune_in(tmp_path, "rte", model, "--seeds", 2, *TRAINED, frozen=False)
    assert status == 0 and ran == [2]
    for ours, theirs in zip(found["runs"], trained[1]["runs"]):
        assert {**ours, "minutes": 0} == {**theirs, "minutes": 0}


def test_a_folder_of_runs_with_other_options_is_refused(tune, model):
    assert tune("rte", model, "--seeds", 1)[0] == 0
    status, _, _, err = tune("rte", model, "--seeds", 1, "--rows", 12)
    assert status == 1 and "holds runs with other options. Received: data was " in err
    status, _, _, err = tune("rte", model, "--seeds", 1, "--weight-decay", 0.1)
    assert status == 1 and "settings was " in err and "seeds and learning rates alone may be added" in err


def test_a_damaged_file_or_the_results_of_linear_models_are_one_error(trained, model, tmp_path, capsys):
    for name, damage, message in (
        ("config.json", "{", "config.json is damaged: it is not JSON"),
        ("config.json", "[]", "config.json is damaged. Received: []"),
        ("rate-0.01-seed-2/result.json", "", "result.json is damaged: it is not JSON"),
        ("config.json", None, "has the results of training.glue_linear"),
    ):
        shutil.copytree(trained[0] / "out", tmp_path / "out")
        path = tmp_path / "out" / name
        path.unlink()
        if damage is not None:
            path.write_text(damage)
        capsys.readouterr()
        assert finetune_in(tmp_path, "rte", model, "--seeds", 2, *TRAINED, frozen=False)[0] == 1
        assert message in capsys.readouterr().err.splitlines()[-1]
        shutil.rmtree(tmp_path / "out")


def test_a_failed_seed_is_shown_and_ranks_below_every_figure(tune, model, monkeypatch):
    real = glue_runs.finetune

    def breaks(encoder, train, held_out, settings, seed, strategy):
        if seed in bad:
            raise TrainingError("the gradient was not finite")
        return real(encoder, train, held_out, settings, seed, strategy)

    monkeypatch.setattr(glue_runs, "finetune", breaks)
    bad = {2}
    status, found, out, err = tune("rte", model, "--seeds", 3)
    values = found["dev"]["dev"]["accuracy"]
    assert status == 0 and values["values"][1] is None and values["median"] == values["lowest"]
    assert "1 of 3 seeds without a value" in out
    assert "WARNING: seed 2 failed and counts below every figure: the gradient was not finite" in err
    bad = {2, 4, 5}
    _, found, out, _ = tune("rte", model, "--seeds", 5)
    assert found["dev"]["dev"]["accuracy"]["median"] is None and "undefined (" in out
    bad = {1, 2, 3, 4, 5}
    status, found, _, _ = tune("rte", model, "--seeds", 2, "--learning-rates", 0.5)
    assert status == 1 and found["dev"]["dev"]["accuracy"]["values"] == [None, None]


@pytest.mark.parametrize(
    "task, label", [("rte", "entailment"), ("wnli", "not_entailment"), ("cola", "acceptable"), ("stsb", 2.5)]
)
def test_a_run_equal_to_the_majority_baseline_is_told_but_for_wnli(tune, model, task, label, monkeypatch):
    monkeypatch.setattr(glue_runs.Runs, "_answers", lambda self, encoder, tuned, split: [label] * len(split.texts))
    status, found, out, err = tune(task, model, "--seeds", 1)
    assert status == 0 and found["no_better_than_majority"] == [1]
    if task == "wnli":
        assert "WNLI is not held to its majority baseline" in err and "commonest" not in err
    else:
        assert "WARNING: no better than always giving the commonest label: 1 of 1 seeds (1)" in err
    if task in ("cola", "stsb"):
        assert "is undefined, every row has the same answer" in err and "undefined (1 of 1 seeds" in out


def test_mnli_has_two_dev_splits_and_three_files(tune, model, tmp_path):
    status, found, out, _ = tune("mnli", model, "--seeds", 1)
    assert status == 0 and list(found["dev"]) == ["dev_matched", "dev_mismatched"]
    assert "on dev_matched<br>accuracy" in out
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"):
        answers = {line.split("\t")[1] for line in lines(tmp_path / "out" / name)[1:]}
        assert answers <= set(TASKS["mnli"].labels) and answers


@pytest.mark.parametrize("task, file", [("qqp", "QQP.tsv"), ("qnli", "QNLI.tsv"), ("mrpc", "MRPC.tsv")])
def test_other_pairs_come_from_the_same_code(tune, model, task, file, tmp_path):
    status, found, _, err = tune(task, model, "--seeds", 1)
    assert status == 0 and list(found["dev"]["dev"]) == list(TASKS[task].metrics)
    assert f"note: train has 24 rows (0 damaged ones passed over), published with {TASKS[task].rows['train']}" in err
    assert len(lines(tmp_path / "out" / file)) == 7


def test_a_bert_learns_a_regression_with_lamb_in_bfloat16(tune, bert, tmp_path):
    options = ("--seeds", 1, "--epochs", 1, "--batch-size", 12, "--optimizer", "lamb", "--dtype", "bfloat16")
    status, found, out, _ = tune("stsb", bert, *options, frozen=False)
    assert status == 0 and list(found["dev"]["dev"]) == ["pearson", "spearman"] and "Pearson correlation" in out
    assert found["settings"]["optimizer"] == "lamb" and found["settings"]["weight_decay"] == 0.01
    assert found["dev"]["dev"]["pearson"]["median"] > 0.5  # the made-up pairs say their score
    rows = [float(line.split("\t")[1]) for line in lines(tmp_path / "out" / "STS-B.tsv")[1:]]
    assert len(rows) == 6 and all(0 <= value <= 5 for value in rows)


@pytest.mark.slow
def test_two_workers_come_to_the_figures_of_one(tune, bert, tmp_path):
    """25 rows in batches of 7 and 6, so that one worker has a row more; with dropout."""
    options = ["--seeds", "1", "--epochs", "2", "--batch-size", "8", "--learning-rates", "0.003"]
    status, one, _, _ = tune("stsb", bert, *options, train=25, frozen=False)
    assert status == 0
    command = [sys.executable, "-m", "training.launch", "--workers", "2", "--logs", str(tmp_path / "logs"), "--"]
    command += [sys.executable, "-m", "training.finetune_glue", "--model", bert, "--task", "stsb", *options]
    command += ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "two"), "--strategy", "multiworker"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    two = json.loads((tmp_path / "two" / "results.json").read_text())
    losses = [[row["loss"] for row in found["runs"][0]["history"][1:]] for found in (one, two)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[0][0] != losses[0][1]
    for metric in ("pearson", "spearman"):
        assert two["dev"]["dev"][metric]["median"] == pytest.approx(one["dev"]["dev"][metric]["median"], abs=1e-4)
    answers = [
        [float(line.split("\t")[1]) for line in lines(tmp_path / folder / "STS-B.tsv")[1:]] for folder in ("out", "two")
    ]
    np.testing.assert_allclose(answers[1], answers[0], atol=2e-3)
    assert two["command"] == one["command"]


def test_several_rates_are_chosen_from_on_dev(tune, model):
    status, found, out, _ = tune("sst2", model, "--seeds", 2, "--learning-rates", 0.001, 0.01)
    assert status == 0 and found["learning_rates"] == [0.001, 0.01]
    assert {run["rate"] for run in found["runs"]} == {found["learning_rate"]} and len(found["other_rates"]) == 2
    assert "chosen on dev" in out


def test_dev_decides_on_the_epoch_only_where_that_is_asked_for(tune, model, monkeypatch):
    given, real = [], glue_runs.finetune

    def seen(encoder, train, held_out, settings, seed, strategy):
        given.append((held_out, settings))
        return real(encoder, train, held_out, settings, seed, strategy)

    monkeypatch.setattr(glue_runs, "finetune", seen)
    tune("rte", model, "--seeds", 1, "--no-submission")
    status, _, _, err = tune("rte", model, "--seeds", 1, "--early-stopping", "--no-submission")
    assert status == 1 and "early_stopping was False, is True" in err  # another folder then
    assert given[0][0] is None and len(given) == 1
    settings = given[0][1]
    assert (settings.optimizer, settings.weight_decay, settings.warmup, settings.clip_norm) == ("adamw", 0.01, 0.1, 1)


def test_early_stopping_holds_dev_out_and_says_so(tune, model):
    status, found, out, _ = tune("rte", model, "--seeds", 1, "--early-stopping", "--no-submission")
    assert status == 0 and found["early_stopping"] and "epoch chosen on dev" in out
    assert "held_out_accuracy" in found["runs"][0]["history"][0]


@pytest.mark.parametrize(
    "more, message",
    [
        (("--seeds", 0), "--seeds must be at least 1. Received: 0"),
        (("--rows", 1), "a row of each label is needed to learn rte. Received: 1 rows, none of"),
        (("--warmup", 2), "warmup must be a number >= 0 and < 1"),
        (("--learning-rates", 0.001, 5), "learning_rate must be a number > 0 and < 1. Received: learning_rate=5.0"),
        (("--max-length", 64), "Received: max_length=64"),
    ],
)
def test_options_that_make_no_run_are_one_error(tune, model, more, message, tmp_path):
    status, found, out, err = tune("rte", model, *more)
    assert status == 1 and found is None and out == "" and not (tmp_path / "out").exists()
    assert message in err and err.splitlines()[-1].startswith("finetune_glue: error: ")


def test_the_diagnostic_set_and_unknown_tasks_say_what_to_do(tune, model, tmp_path):
    assert "Say --task mnli" in tune("ax", model, data=tmp_path)[3]
    assert "no task of this name. Received: 'squad'" in tune("squad", model, data=tmp_path)[3]


def test_a_missing_test_split_is_a_note(tune, model, tmp_path):
    folder = made_glue(tmp_path / "data", "qnli")
    (folder / "QNLI" / "test.tsv").unlink()
    status, found, _, err = tune("qnli", model, "--seeds", 1, data=folder)
    assert status == 0 and "note: no QNLI.tsv for the leaderboard: " in err
    assert str(tmp_path) not in json.dumps(found)


@pytest.mark.parametrize("task", ["wnli", "mnli", "sst2", "stsb"])
def test_classes_have_the_public_order(task, tmp_path):
    train = read_split(TASKS[task], made_glue(tmp_path, task), "train")
    kind = glue_runs.kind_of(train)
    targets = kind.targets(list(train.labels))[0]
    if task == "stsb":
        assert not hasattr(kind, "classes") and targets.tolist() == train.labels
    else:
        assert kind.classes == list(TASKS[task].labels)
        assert [kind.classes[target] for target in targets] == train.labels


def test_the_hub_is_read_where_that_is_asked_for(monkeypatch):
    asked = []

    def read(task, split):
        asked.append(split)
        raise ConfigError("stop here")

    monkeypatch.setattr(glue_data, "read_hub_split", read)
    with pytest.raises(ConfigError, match="stop here"):
        glue_data.read_data(TASKS["rte"], "hub")
    assert asked == ["train"]


@pytest.mark.parametrize(
    "values, wanted",
    [([0.1, 0.5, 0.3], 0.3), ([0.1, 0.2], 0.15), ([None, 0.5, 0.3], 0.3), ([None, 0.5], None), ([None, None], None)],
)
def test_the_median_ranks_what_has_no_value_below_every_number(values, wanted):
    found = glue_summary.median(values)
    assert found == (None if wanted is None else pytest.approx(wanted))
