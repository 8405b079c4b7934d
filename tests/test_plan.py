"""Recipes as plans: what --dry-run prints, and that the published runs are what their sources say."""

import dataclasses
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig
from lbzoo.optimizers import schedules
from training import plan, pretrain_mlstm
from training.recipes import RECIPES, recipe
from training.settings import with_settings

PUBLISHED = {"openai-2017", "nvidia-2048", "nvidia-32k", "nvidia-8192-units"}


def dry_run(capsys, *arguments):
    assert pretrain_mlstm.main([*arguments, "--dry-run"]) == 0
    return capsys.readouterr().out


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-m", "training.pretrain_mlstm", "--recipe", "tiny", "--dry-run"]
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_dry_run_prints_the_plan_of_every_recipe(name, capsys, tmp_path):
    out = dry_run(capsys, "--recipe", name, "--run", str(tmp_path / "run"))
    config = recipe(name)
    assert f"{config.steps:,} of {config.data.rows:,} rows x {config.data.window} bytes" in out
    assert f"{config.steps * config.data.rows * config.data.window:,}" in out
    assert len(re.findall(r"^  step +[\d,]+  rate [\d.e+-]+$", out, re.M)) == 10
    assert re.search(r"^memory per device, estimated: [\d.]+ [GM]iB, of which", out, re.M)
    assert "warning" not in out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name, rows, steps, rate, schedule",
    [
        ("openai-2017", 128, 1_000_000, 5e-4, schedules.openai_2017()),
        ("nvidia-2048", 2048, 73_000, 3e-3, schedules.nvidia_large_batch()),
        ("nvidia-32k", 32_768, 13_688, 3e-3, schedules.nvidia_large_batch()),
        ("nvidia-8192-units", 768, 194_667, 3e-3, schedules.LinearDecay(3e-3, 194_667, end=1e-8)),
    ],
)
def test_the_published_runs(name, rows, steps, rate, schedule):
    config = recipe(name)
    assert (config.data.rows, config.data.window, config.steps) == (rows, 256, steps)
    assert plan.schedule(config) == schedule
    np.testing.assert_allclose(plan.peak_rate(config), rate, rtol=1e-12)
    assert config.precision == ("float32" if name == "openai-2017" else "mixed_float16")


def test_parameters_of_the_released_model():
    assert plan.parameters(MLSTMConfig(units=4096, embedding_dim=64)) == 86_319_360  # with the four gain vectors


def test_gradients_travel_in_float16_where_they_did_in_the_published_run(capsys):
    assert "gradient    0.16 GiB in float16 from each" in dry_run(capsys, "--recipe", "nvidia-32k")
    assert "gradient    0.32 GiB in float32 from each" in dry_run(capsys, "--recipe", "openai-2017")


def test_a_rate_scaled_linearly_beyond_the_cap_says_why_that_diverges(capsys):
    out = dry_run(capsys, "--recipe", "nvidia-32k", "--set", "optimizer.rate_cap=0")
    assert "peak 0.128" in out
    assert "warning: the learning rate is 0.128 for 32768 rows, above 0.003" in out
    assert "immediate divergence" in out and "capped our max learning rate at 3e-3" in out
    assert "Set optimizer.rate_cap=0.003" in out


@pytest.mark.parametrize(
    "name, settings, warned",
    [
        ("nvidia-2048", {"optimizer.learning_rate": "4e-3"}, True),  # said outright, not scaled
        ("tiny", {}, False),  # 5e-3, but for 8 rows: nobody scaled that
        ("tiny", {"optimizer.scaling": "linear", "optimizer.reference_rows": "4"}, True),
        ("nvidia-32k", {"optimizer.scaling": "sqrt", "optimizer.rate_cap": "0"}, True),  # 8e-3
    ],
)
def test_when_it_warns(name, settings, warned):
    assert bool(plan.warnings(with_settings(recipe(name), settings))) == warned


def test_micro_batches_divide_the_rows_of_each_device():
    config = recipe("nvidia-32k")
    assert [plan.micro_batches(config, replicas) for replicas in (1, 2, 64, 128, 256)] == [128, 64, 2, 1, 1]
    with pytest.raises(ConfigError, match="data.rows=32768, 3 devices"):
        plan.micro_batches(config, 3)
    with pytest.raises(ConfigError, match="micro_rows=300"):
        plan.micro_batches(dataclasses.replace(config, micro_rows=300))


def test_memory_goes_with_the_rows_at_once_not_with_the_batch():
    config = recipe("nvidia-32k")
    weights, rows = plan.memory(config)
    assert plan.memory(dataclasses.replace(config, micro_rows=512)) == (weights, 2 * rows)
    assert plan.memory(config, 128)[1] == rows
    assert 1.5 < weights / plan.GIB < 3 and rows / plan.GIB < 16  # 256 rows ran on a V100 of 16 GB


def test_settings_choose_another_schedule_and_a_warmup_in_shares_and_epochs():
    changes = {"optimizer.schedule": "polynomial", "optimizer.power": "0.5", "optimizer.warmup": "0.1"}
    config = with_settings(recipe("tiny"), {**changes, "optimizer.warmup_unit": "share"})
    assert plan.schedule(config) == schedules.PolynomialDecay(5e-3, 60, warmup=6, power=0.5)
    config = with_settings(recipe("tiny"), {"optimizer.warmup": "2", "optimizer.warmup_unit": "epochs"})
    assert plan.schedule(config, steps_per_epoch=9).warmup == 18
    with pytest.raises(ConfigError, match="is not known"):
        plan.schedule(config)
    with pytest.raises(ConfigError, match="no such schedule.*cosine"):
        plan.schedule(with_settings(recipe("tiny"), {"optimizer.schedule": "sinusoidal"}))


def test_every_field_of_a_published_recipe_carries_its_source(root):
    text = (root / "training" / "recipes.py").read_text()
    for name in PUBLISHED:
        body = text.split(f"def {name.replace('-', '_')}() ")[1].split("\n\n\n")[0]
        for line in body.splitlines():
            if re.match(r"\s+(rows|window|steps|learning_rate|precision|clip_norm|micro_rows)=\S+,", line):
                assert "#" in line, line
