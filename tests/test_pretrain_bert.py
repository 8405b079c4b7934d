"""A run of BERT: both phases, crashes and kills, two workers, held-out figures, and what it exports."""

import csv
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lbzoo
from lbzoo.errors import ConfigError
from lbzoo.models.bert import BertForPreTraining
from tests import kill_sweep
from training import bert_evaluate, bert_run, pretrain_bert, sample_reviews
from training.bert_recipes import recipe
from training.documents import SPLITS
from training.inputs import Fields
from training.loop import End
from training.prepare_bert import prepare
from training.prepare_reviews import Policy
from training.prepare_reviews import prepare as prepare_reviews
from training.settings import with_settings

SMALL = {
    **{"model.num_hidden_layers": "1", "model.hidden_size": "16", "model.intermediate_size": "32"},
    **{"first.steps": "6", "second.steps": "4", "save_every": "2", "evaluate_every": "5"},
}


def small(**changes):
    return with_settings(recipe("tiny"), {**SMALL, **changes})


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Token ids of the made-up reviews, a tenth of them held out."""
    folder = tmp_path_factory.mktemp("bert")
    lines = [json.dumps({"text": document.text.decode()}) for document in sample_reviews.documents(800)]
    (folder / "in.jsonl").write_text("\n".join(lines))
    prepare_reviews([folder / "in.jsonl"], folder / "text", Policy("reviews", Fields(), 1, (8, 1, 1)), workers=1)
    prepare(folder / "text", folder / "tokens", size=300)
    return folder / "tokens"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, shards):
    """(run folder, trainer, end) of a run that nobody disturbed."""
    run = tmp_path_factory.mktemp("bert") / "whole"
    return run, *bert_run.train(small(), shards, run)


def test_both_phases_are_done_and_logged(whole):
    run, trainer, end = whole
    assert end == End(10, end.loss, complete=True) and np.isfinite(end.loss)
    rows = list(csv.DictReader((run / "log.csv").open()))
    assert [row["step"] for row in rows] == ["10"]
    assert {"tokens_per_second", "masked_lm", "next_sentence", "masked_lm_accuracy", "rate"} <= set(rows[0])
    assert int(trainer.optimizer.iterations) == 10


def test_held_out_figures_come_with_every_evaluation(whole, shards):
    run, trainer, _ = whole
    rows = list(csv.DictReader((run / "heldout.csv").open()))
    assert [row["step"] for row in rows] == ["5", "10"]
    stream = bert_evaluate.BertStream(shards, 32, 32, 5, seed=1, split="valid")
    assert stream.shards.documents.size > 50
    figures = bert_evaluate.evaluator(trainer.model, stream)()
    for name, value in figures.items():
        np.testing.assert_allclose(float(rows[1][name]), value, rtol=1e-4, err_msg=name)
    logits, right, tokens = 0.0, 0.0, 0.0
    for number in range(stream.steps_per_epoch):  # as a mean over all predicted tokens, worked out by hand
        batch = stream.batch(number)
        out = trainer.model(batch.ids, batch.segments, batch.mask, positions=batch.positions).masked_lm.numpy()
        shifted = out - out.max(-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        logits -= (np.take_along_axis(logs, batch.labels[..., None], -1)[..., 0] * batch.weights).sum()
        right += ((out.argmax(-1) == batch.labels) * batch.weights).sum()
        tokens += batch.weights.sum()
    np.testing.assert_allclose(figures["masked_lm"], logits / tokens, rtol=1e-5)
    np.testing.assert_allclose(figures["masked_lm_accuracy"], right / tokens, rtol=1e-5)


class Crash(Exception):
    pass


def crash_in(monkeypatch, number):
    step = bert_run.BertTrainer.step

    def crashing(self, t):
        if t == number:
            raise Crash
        return step(self, t)

    monkeypatch.setattr(bert_run.BertTrainer, "step", crashing)


def test_a_run_goes_on_from_its_last_checkpoint(whole, shards, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole[0], run, ignore=shutil.ignore_patterns("step-00000010"))
    trainer, end = bert_run.train(small(), shards, run)
    assert trainer.checksum() == whole[1].checksum() and end == whole[2]
    assert (run / "heldout.csv").read_text() == (whole[0] / "heldout.csv").read_text()


@pytest.mark.slow
def test_a_run_that_crashed_in_both_phases_ends_with_the_same_weights(whole, shards, tmp_path):
    for number in (5, 9):  # after the saves of steps 4 and 8
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
            crash_in(patch, number)
            bert_run.train(small(), shards, tmp_path / "run")
    trainer, end = bert_run.train(small(), shards, tmp_path / "run")
    assert trainer.checksum() == whole[1].checksum() and end == whole[2]


def test_trust_ratios_of_every_weight_are_logged(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(bert_run, "RATIOS_EVERY", 2)
    config = small(**{"second.steps": "0"})
    trainer, _ = bert_run.train(config, shards, tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "run" / "trust_ratios.csv").open()))
    assert [row.pop("step") for row in rows] == ["2", "4", "6"]
    assert set(rows[0]) == set(trainer.model.named_weights())  # the preset adapts all of them
    assert all(0 < float(ratio) < 1e4 for row in rows for ratio in row.values())


def test_the_best_checkpoint_by_masked_lm_is_kept_and_exported(shards, tmp_path, capsys):
    settings = [part for field, value in SMALL.items() for part in ("--set", f"{field}={value}")]
    given = ["--recipe", "tiny", *settings, "--run", str(tmp_path / "run"), "--shards", str(shards)]
    assert pretrain_bert.main([*given, "--export", str(tmp_path / "exported"), "--best"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^step 10 loss [\d.]+ checksum \w{8}$", out, re.M)
    step, loss = re.search(r"^exported: step (\d+), masked_lm ([\d.]+)$", out, re.M).groups()
    figures = {
        row["step"]: float(row["masked_lm"]) for row in csv.DictReader((tmp_path / "run" / "heldout.csv").open())
    }
    assert figures[step] == min(figures.values())
    np.testing.assert_allclose(float(loss), figures[step], atol=1e-4)
    model = lbzoo.load(tmp_path / "exported")
    assert isinstance(model, BertForPreTraining) and model.text == "reviews-uncased"
    command = ["--model", str(tmp_path / "exported"), "--shards", str(shards), "--length", "32", "--split", "valid"]
    assert bert_evaluate.main(command) == 0
    measured = float(re.search(r"valid: masked_lm ([\d.]+)", capsys.readouterr().out).group(1))
    np.testing.assert_allclose(measured, figures[step], rtol=0.02)  # float16, and other predictions a row


def test_shards_without_held_out_text_train_all_the_same(tmp_path):
    tokens = bert_run.sample_shards(tmp_path / "shards", 300)
    assert not set(SPLITS) - {"train"} & set(json.loads((tokens / "index.json").read_text())["splits"])
    _, end = bert_run.train(small(**{"first.steps": "1", "second.steps": "0"}), tokens, tmp_path / "run")
    assert end.complete and not (tmp_path / "run" / "heldout.csv").exists()
    with pytest.raises(ConfigError, match="--best chooses by figures on held-out text"):
        bert_run.train(small(), tokens, tmp_path / "other", best=True)
    assert not list((tmp_path / "other").glob("step-*"))


def test_a_dry_run_prints_the_plan_and_trains_nothing(shards, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert pretrain_bert.main(["--recipe", "bert-large-lamb-64k-32k", "--dry-run", "--run", run]) == 0
    out = capsys.readouterr().out
    assert "steps       8,599\n" in out and "warm-up 2,001 steps" in out and "passes" not in out
    assert pretrain_bert.main(["--recipe", "tiny", "--dry-run", "--run", run, "--shards", str(shards)]) == 0
    assert re.search(r"^passes      [\d.]+ and [\d.]+ over the shards$", capsys.readouterr().out, re.M)
    assert not (tmp_path / "run").exists()


def test_what_cannot_run_is_one_line(shards, tmp_path, capsys):
    for arguments, words in (
        (["--recipe", "huge"], "no such recipe"),
        (["--recipe", "tiny", "--shards", str(tmp_path)], "no folder of token ids.*prepare_bert"),
        (["--recipe", "tiny", "--shards", str(shards), "--set", "model.vocab_size=100"], "vocabulary must fit"),
        (["--recipe", "tiny", "--shards", str(shards), "--set", "optimizer.preset=fused"], "no such LAMB"),
    ):
        assert pretrain_bert.main([*arguments, "--run", str(tmp_path / "run")]) == 1
        err = capsys.readouterr().err.splitlines()
        assert re.match(f"pretrain_bert: error: .*{words}", err[-1]), err
    shutil.rmtree(tmp_path / "run", ignore_errors=True)


@pytest.mark.slow
def test_kill_9_at_a_random_moment_changes_nothing(tmp_path):
    said = []
    assert kill_sweep.sweep(kills=1, workers=1, seed=5, folder=tmp_path, say=said.append, program="pretrain_bert"), said


@pytest.mark.slow
def test_two_workers_end_with_the_weights_of_one(whole, shards, tmp_path):
    settings = [part for field, value in SMALL.items() for part in ("--set", f"{field}={value}")]
    train = ["training.pretrain_bert", "--recipe", "tiny", *settings, "--shards", str(shards)]
    launcher = [sys.executable, "-m", "training.launch", "--workers", "2", "--logs", str(tmp_path / "logs")]
    command = [
        *launcher,
        "--",
        sys.executable,
        "-m",
        *train,
        "--run",
        str(tmp_path / "two"),
        "--strategy",
        "multiworker",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    ends = [kill_sweep.Run(run, workers=1, steps=10) for run in (whole[0], tmp_path / "two")]
    assert kill_sweep.differences(*ends, tolerance=2e-5) == []
