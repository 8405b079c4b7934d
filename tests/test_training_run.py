"""A run: it learns, stops and resumes exactly, skips what is not finite, and exports what lbzoo loads."""

import argparse
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import lbzoo
from lbzoo._keras import adam
from lbzoo.errors import ConfigError, TrainingError
from lbzoo.optimizers.schedules import LinearDecay
from lbzoo.optimizers.update import Update
from training import command, evaluate, heldout, loop, pretrain_mlstm, sample_reviews, trainer
from training.checkpointing import Checkpoints
from training.cluster import Cluster
from training.evaluate import bits_per_character
from training.heldout import HeldOut
from training.inputs import Fields
from training.prepare_reviews import Policy, prepare
from training.recipes import RECIPES, RunConfig, recipe
from training.settings import with_settings
from training.watch import Watch


def start(run, *more):
    command = [sys.executable, "-m", "training.pretrain_mlstm", "--recipe", "tiny", "--run", str(run), *more]
    env = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}  # as a user has it
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finish(run, *more, status=0):
    """Its last line; on the way it tells of its progress, and TensorFlow of nothing."""
    process = start(run, *more)
    out, err = process.communicate(timeout=600)
    assert process.returncode == status, err
    assert all(re.match(r"step \d+ of 60: bpc [\d.]+, rate .* left$", line) for line in err.splitlines()), err
    return out.strip().splitlines()[-1]


def wait_for(condition, seconds=300):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "whole"
    return run, finish(run, "--export", str(run / "exported"))


def newest(run):
    return max(int(path.name[5:]) for path in run.glob("step-*"))


@pytest.mark.slow
def test_sigterm_saves_and_exits_75(tmp_path):
    process = start(tmp_path / "run", "--set", "steps=100000", "--set", "save_every=100000")
    wait_for(lambda: (tmp_path / "run" / "log.csv").exists())
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == loop.RESUME_EXIT and "start again to go on" in err
    assert newest(tmp_path / "run") >= 20


def test_the_loss_falls_and_the_export_is_a_checkpoint_with_a_probe(uninterrupted):
    run, last_line = uninterrupted
    rows = [line.split(",") for line in (run / "log.csv").read_text().splitlines()]
    loss = rows[0].index("loss")
    assert float(rows[-1][loss]) < 0.9 * float(rows[1][loss])
    assert last_line.startswith("step 60 loss ")
    classifier = lbzoo.SentimentClassifier(run / "exported")
    assert classifier.predict_proba(["fine"]).shape == (1, 2)


def test_the_best_checkpoint_by_held_out_figure_can_be_exported(tmp_path, monkeypatch):
    bits, shards, exported = iter([2.5, 2.25, 2.75]), sample_reviews.write(tmp_path / "shards"), tmp_path / "exported"
    monkeypatch.setattr(trainer, "held_out", lambda data: HeldOut([], {}))
    monkeypatch.setattr(trainer, "bits_per_character", lambda *_, **__: next(bits))
    settings = ["model.units=8", "model.embedding_dim=4", "steps=6", "save_every=1", "evaluate_every=2"]
    where = ["--shards", str(shards), "--data", str(tmp_path), "--run", str(tmp_path / "run")]
    command = ["--recipe", "tiny", *where, *(part for setting in settings for part in ("--set", setting))]
    assert pretrain_mlstm.main([*command, "--export", str(exported), "--best"]) == 0
    assert sorted(path.name for path in (tmp_path / "run").glob("step-*")) == [f"step-0000000{n}" for n in (4, 5, 6)]
    bias = lbzoo.load(exported).named_weights()["b"].numpy()
    np.testing.assert_allclose(bias, saved_bias(tmp_path / "run", 4), atol=1e-3)  # weights are exported in float16
    assert np.max(np.abs(bias - saved_bias(tmp_path / "run", 6))) > 5e-3


def saved_bias(run, step):
    saved = tf.train.load_checkpoint(str(run / f"step-{step:08d}" / "state"))
    return saved.get_tensor("model/b/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_finished_run_started_again_says_the_same(uninterrupted):
    run, expected = uninterrupted
    assert finish(run) == expected


def test_another_configuration_in_the_same_folder_is_refused(uninterrupted, capsys):
    run, _ = uninterrupted
    status = pretrain_mlstm.main(["--recipe", "tiny", "--run", str(run), "--set", "optimizer.learning_rate=1e-4"])
    assert status == 1
    assert "optimizer differ" in capsys.readouterr().err


def run_loop(folder, config, check=lambda limit: None, evaluate=dict, **options):
    """Two steps of the loop around nothing."""
    checkpoints = Checkpoints(folder, {"variable": tf.Variable([1.0, 2.0])})
    return loop.run(
        folder=folder,
        config=config,
        steps=2,
        checkpoints=checkpoints,
        watch=Watch(folder, 2),
        step_function=lambda step: {"loss": 1.5, "characters": 1},
        evaluate=evaluate,
        check=check,
        save_every=1,
        evaluate_every=1,
        **options,
    )


def test_another_configuration_is_accepted_where_it_is_asked_for(tmp_path):
    run_loop(tmp_path, {"rate": 1, "steps": 2})
    with pytest.raises(TrainingError, match="rate differ.*--accept-changes"):
        run_loop(tmp_path, {"rate": 2, "steps": 2})
    end = run_loop(tmp_path, {"rate": 2, "steps": 2}, accept_changes=True)
    assert end == loop.End(2, 1.5, complete=True)
    run_loop(tmp_path, {"rate": 2, "steps": 2})  # it is the run's configuration from now on


def test_a_configuration_that_no_checkpoint_fits_does_not_start_from_nothing(tmp_path):
    run_loop(tmp_path, {"units": 1})
    for folder in tmp_path.glob("step-*"):
        (folder / "COMMIT.json").unlink()
    with pytest.raises(TrainingError, match="none of the 2 checkpoints.*init_from"):
        run_loop(tmp_path, {"units": 2}, accept_changes=True)
    assert len(list(tmp_path.glob("step-*"))) == 2


def test_a_second_run_in_a_folder_is_refused_while_the_first_goes_on(tmp_path):
    def second(limit):
        with pytest.raises(TrainingError, match="another run is going on in"):
            run_loop(tmp_path, {"a": 1})

    assert run_loop(tmp_path, {"a": 1}, check=second).complete
    assert run_loop(tmp_path, {"a": 1}).complete


def test_skipped_steps_are_counted_after_each_step(tmp_path):
    limits = []
    run_loop(tmp_path, {}, check=limits.append)
    assert limits == [10, 10]


def small_update(clip_norm=1.0):
    variable = tf.Variable([1.0, -2.0])
    return variable, Update([variable], adam(0.1), LinearDecay(0.1, 100), clip_norm)


@pytest.mark.parametrize("poison", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_changes_nothing(poison):
    variable, update = small_update()

    def loss(factor):
        return tf.reduce_sum(variable * variable) * factor, None

    step = tf.function(lambda factor: update(loss, factor))
    step(tf.constant(1.0))
    before = [v.numpy().copy() for v in (variable, *update.optimizer.variables())]
    for _ in range(3):
        step(tf.constant(poison))
    for old, new in zip(before, (variable, *update.optimizer.variables())):
        np.testing.assert_array_equal(old, new.numpy())
    assert int(update.skipped) == int(update.skipped_in_a_row) == 3
    update.check(limit=4)
    with pytest.raises(TrainingError, match="3 steps in a row"):
        update.check(limit=3)
    step(tf.constant(1.0))
    assert int(update.skipped_in_a_row) == 0 and int(update.optimizer.iterations) == 2


def test_the_update_is_adam_on_the_clipped_gradient():
    variable, update = small_update(clip_norm=0.5)
    m = v = np.zeros(2)
    w = variable.numpy().astype(np.float64)
    for t in range(1, 6):
        _, norm, _ = update(lambda: (tf.reduce_sum(variable * variable), None))
        gradient = 2 * w
        np.testing.assert_allclose(norm, np.linalg.norm(gradient), rtol=1e-5)
        gradient *= min(1, 0.5 / np.linalg.norm(gradient))
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        rate = 0.1 * (1 - (t - 1) / 100) * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        w = w - rate * m / (np.sqrt(v) + 1e-8)
        np.testing.assert_allclose(variable.numpy(), w, rtol=1e-4)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_survives_its_json(name):
    assert RunConfig.from_dict(recipe(name).to_dict()) == recipe(name)


def test_settings_replace_fields_by_path():
    config = with_settings(
        recipe("tiny"), {"optimizer.learning_rate": "1e-4", "steps": "7", "model.weight_norm": "false"}
    )
    assert (config.optimizer.learning_rate, config.steps, config.model.weight_norm) == (1e-4, 7, False)


@pytest.mark.parametrize(
    "setting, words",
    [
        ({"optimizer.rate": "1"}, "no such setting.*learning_rate"),
        ({"steps": "many"}, "steps is a int"),
        ({"model": "x"}, "group of settings"),
        ({"steps.x": "1"}, "no fields of its own"),
        ({"model.output": "maybe"}, "output is a bool"),
        ({"precision": "float8"}, "no such precision.*'float8'.*mixed_float16"),
        ({"text": "poems"}, "no such text policy.*'poems'.*reviews"),
        ({"data.rows": "0"}, "data.rows is at least 1. Received: 0"),
        ({"save_every": "0"}, "save_every is at least 1. Received: 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(setting, words):
    with pytest.raises(ConfigError, match=words):
        with_settings(recipe("tiny"), setting)


@pytest.mark.parametrize("text", ["", "{", "3", '["a"]'])
def test_a_run_folder_with_a_damaged_config_is_refused(tmp_path, capsys, text):
    (tmp_path / "config.json").write_text(text)
    assert pretrain_mlstm.main(["--recipe", "tiny", "--run", str(tmp_path)]) == 1
    assert "config.json is damaged" in capsys.readouterr().err


def test_best_without_a_folder_to_export_to_is_a_wrong_argument(capsys):
    with pytest.raises(SystemExit, match="2"):
        pretrain_mlstm.main(["--recipe", "tiny", "--best"])
    assert "--export FOLDER" in capsys.readouterr().err


def test_best_without_held_out_text_is_refused_before_the_first_step(tmp_path, capsys):
    command = ["--recipe", "tiny", "--set", "model.units=8", "--run", str(tmp_path / "run")]
    assert pretrain_mlstm.main([*command, "--export", str(tmp_path / "exported"), "--best"]) == 1
    assert re.search(r"error: --best chooses by figures on held-out text\. Received: none", capsys.readouterr().err)
    assert not list((tmp_path / "run").glob("step-*")) and not (tmp_path / "run" / "log.csv").exists()


def test_best_without_held_out_text_takes_what_was_measured_before(tmp_path):
    run_loop(tmp_path, {"steps": 2}, evaluate=lambda: {"bpc": 2.0}, best=True)
    assert run_loop(tmp_path, {"steps": 2}, evaluate=None, best=True).complete


@pytest.mark.parametrize("best", [False, True])
def test_a_run_that_stopped_early_exports_nothing_and_says_so(capsys, best):
    options, exported = argparse.Namespace(export=Path("exported"), best=best), []
    commit, trainer = {"step": 2, "figures": {"bpc": 2.0}}, SimpleNamespace(checksum=lambda: "abc")
    early = loop.End(3, 1.5, complete=False), loop.RESUME_EXIT, ", nothing exported to exported before the last step"
    for end, status, told in (early, (loop.End(6, 1.25, complete=True), 0, "")):
        wrote = functools.partial(exported.append, end.step)
        assert command.finish(options, Cluster(), trainer, end, lambda: commit, "bpc", wrote) == status
        assert capsys.readouterr().out.splitlines()[-1] == f"step {end.step} loss {end.loss:.6f} checksum abc{told}"
    assert exported == [6]


def test_an_interrupt_is_no_traceback(capsys):
    def stopped():
        raise KeyboardInterrupt

    assert command.ended("glue_linear", stopped) == 130
    assert capsys.readouterr().err == "glue_linear: interrupted\n"


@pytest.mark.parametrize("minutes", ["-1", "0", "nan"])
def test_no_time_to_train_in_is_a_wrong_argument(minutes, capsys):
    with pytest.raises(SystemExit, match="2"):
        pretrain_mlstm.main(["--recipe", "tiny", "--minutes", minutes])
    assert "--minutes is above 0" in capsys.readouterr().err


def test_an_unknown_recipe_lists_the_known(capsys):
    assert pretrain_mlstm.main(["--recipe", "huge"]) == 1
    assert "tiny" in capsys.readouterr().err


def test_bits_per_character_of_a_model_that_knows_nothing_is_eight(tiny_model):
    blank = lbzoo.MLSTMLanguageModel(tiny_model.config, seed=None)
    texts = [d.text for d in sample_reviews.documents(100)]
    np.testing.assert_allclose(bits_per_character(blank, texts, rows=4, window=64), 8.0, atol=1e-4)


def test_bits_per_character_equals_reading_text_by_text(tiny_model):
    texts = [d.text for d in sample_reviews.documents(8)]
    total, count = 0.0, 0
    joined = b"".join(texts)
    ids = np.frombuffer(joined, np.uint8).astype(np.int32)[None]
    logits, _ = tiny_model(ids[:, :-1], reset=ids[:, :-1] == ord("\n"))
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], logits)
    total, count = float(tf.reduce_sum(loss)), loss.shape[1]
    measured = bits_per_character(tiny_model, texts, rows=1, window=count)
    np.testing.assert_allclose(measured, total / count / np.log(2), rtol=1e-5)


def test_bits_per_character_on_prepared_shards_are_those_of_the_same_texts(tiny_checkpoint, tmp_path, capsys):
    texts = [d.text for d in sample_reviews.documents(300)]
    lines = [json.dumps({"text": text.decode(), "split": "test" if i % 2 else "train"}) for i, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    chosen = Policy(lbzoo.load(tiny_checkpoint).text, Fields(), 1, (4, 1, 1))
    prepare([tmp_path / "in.jsonl"], tmp_path / "shards", chosen, workers=1)
    assert evaluate.main(["--model", str(tiny_checkpoint), "--shards", str(tmp_path / "shards")]) == 0
    printed = capsys.readouterr().out
    held_out = {text for i, text in enumerate(texts) if i % 2}  # what both hold is not trained on
    bits = bits_per_character(lbzoo.load(tiny_checkpoint), evaluate.in_fixed_order(held_out))
    assert printed == f"shards test bpc {bits:.3f}\n"


def test_shards_of_another_text_policy_or_without_a_test_split_are_refused(tiny_checkpoint, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("good\nbad\n" * 500)
    other = "openai" if lbzoo.load(tiny_checkpoint).text == "reviews" else "reviews"
    prepare([tmp_path / "in.txt"], tmp_path / "shards", Policy(other, Fields(), 1, (4, 1, 1)), workers=1)
    command = ["--model", str(tiny_checkpoint), "--shards"]
    assert evaluate.main([*command, str(tmp_path / "shards")]) == 1
    assert "--text" in capsys.readouterr().err
    assert evaluate.main([*command, str(sample_reviews.write(tmp_path / "no-splits"))]) == 1
    assert "no split 'test'" in capsys.readouterr().err


def test_a_sentiment_loss_needs_a_teachers_target(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(heldout, "FEWEST", 100)
    monkeypatch.delenv("LBZOO_DATA", raising=False)
    (tmp_path / "in.txt").write_text("".join(f"good number {i}\n" for i in range(200)))
    prepare([tmp_path / "in.txt"], tmp_path / "shards", Policy("reviews", Fields(), 1, (4, 1, 1)), workers=1)
    command = ["--recipe", "tiny", "--shards", str(tmp_path / "shards"), "--run", str(tmp_path / "run")]
    assert pretrain_mlstm.main(command) == 1
    assert "prepare_sentiment" in capsys.readouterr().err
    exported = tmp_path / "exported"
    settings = ["--set", "sentiment_weight=0", "--set", "steps=10"]
    assert pretrain_mlstm.main([*command, *settings, "--export", str(exported)]) == 0
    assert not list(exported.glob("probe*"))  # nobody taught the read-out anything
    step, bits = (tmp_path / "run" / "heldout.csv").read_text().split()[1].split(",")  # of the shards' own split
    assert step == "10" and 0 < float(bits) < 8
