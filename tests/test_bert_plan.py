"""BERT's recipes as plans: what --dry-run prints, and that the published runs are what their sources say."""

import dataclasses
import re

import numpy as np
import pytest

from lbzoo.errors import ConfigError
from lbzoo.optimizers.schedules import PolynomialDecay, TwoPhase
from training import bert_plan, plan
from training.bert_recipes import RECIPES, BertRunConfig, PhaseConfig, recipe
from training.settings import with_settings

PUBLISHED = {"bert-base-adamw-256", "bert-large-lamb-32k", "bert-large-lamb-64k-32k"}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_survives_its_json_and_has_a_plan(name):
    config = recipe(name)
    assert BertRunConfig.from_dict(config.to_dict()) == config
    out = bert_plan.describe(name, config)
    assert f"steps       {config.steps:,}\n" in out and "warning" not in out
    assert len(re.findall(r"^  step +[\d,]+  rate [\d.e+-]+$", out, re.M)) == 6 * len(config.phases)


def test_the_run_of_76_minutes_prints_its_steps_and_both_ramps():
    out = bert_plan.describe("bert-large-lamb-64k-32k", recipe("bert-large-lamb-64k-32k"))
    assert "steps       8,599\n" in out
    assert "phase 1     7,037 steps of 65,536 rows x 128 tokens" in out
    assert "phase 2     1,562 steps of 32,768 rows x 512 tokens" in out
    assert "warm-up 2,001 steps to 0.006, then falls to 0 at step 7,037" in out
    assert "warm-up 222 steps to 0.00424264, then falls to 0 at step 8,599" in out
    rates = {int(a.replace(",", "")): float(b) for a, b in re.findall(r"step +([\d,]+)  rate (\S+)", out)}
    assert rates[1] < 1e-5 and rates[7037] < 1e-5 and rates[7038] < 1e-4 and rates[8599] < 1e-5


def test_the_published_runs():
    large = bert_plan.schedule(recipe("bert-large-lamb-64k-32k"))
    assert large == TwoPhase(
        PolynomialDecay(6e-3, 7037, warmup=2001), PolynomialDecay(6e-3 * 0.5**0.5, 1562, warmup=222)
    )
    config = recipe("bert-large-lamb-32k")
    assert [phase.rows for phase in config.phases] == [32_768, 32_768] and config.steps == 15_625
    assert bert_plan.schedule(config) == PolynomialDecay(6e-3 * 0.5**0.5, 15_625, warmup=2221)
    assert plan.parameters(config.model) == 336_226_108  # BERT large with both heads, as published
    config = recipe("bert-base-adamw-256")
    assert bert_plan.schedule(config) == PolynomialDecay(1e-4, 1_000_000, warmup=10_000)
    assert plan.parameters(config.model) == 110_106_428
    assert config.phases[0].rows * config.phases[0].steps == 230_400_000


def test_rates_go_with_the_root_of_the_rows_and_warmups_with_the_rows():
    config = with_settings(recipe("bert-large-lamb-64k-32k"), {"first.rows": "16384", "second.rows": "4096"})
    assert [bert_plan.peak_rate(config, phase) for phase in config.phases] == [3e-3, 1.5e-3]
    first, second = (bert_plan.warmup(config, phase, phase.steps) for phase in config.phases)
    assert (first, second) == (round(7037 * 0.2843 / 4), round(1562 * 0.2843 / 16))


def test_one_schedule_over_two_phases_goes_on_falling():
    config = with_settings(recipe("tiny"), {"optimizer.again": "false", "second.rows": "8"})
    rates = bert_plan.schedule(config)
    assert rates == PolynomialDecay(3e-2, 80, warmup=8)
    assert "goes on falling" in bert_plan.describe("tiny", config)
    with pytest.raises(ConfigError, match="one peak.*8 and 4 rows.*Set optimizer.again"):
        bert_plan.schedule(with_settings(recipe("tiny"), {"optimizer.again": "false"}))


def test_a_second_phase_of_no_steps_is_left_out():
    config = with_settings(recipe("tiny"), {"second.steps": "0"})
    assert len(config.phases) == 1 and config.steps == 60
    assert bert_plan.schedule(config) == PolynomialDecay(3e-2, 60, warmup=6)
    assert "phase 2" not in bert_plan.describe("tiny", config)


@pytest.mark.parametrize(
    "name, settings, words",
    [
        ("bert-large-lamb-64k-32k", {"first.rows": "131072", "optimizer.warmup": "0.1"}, "0.00848528.*above 0.006"),
        ("bert-base-adamw-256", {"first.rows": "16384", "second.rows": "16384"}, "AdamW misses its target"),
        ("tiny", {"optimizer.learning_rate": "0.1"}, None),  # for 8 rows
    ],
)
def test_when_it_warns(name, settings, words):
    found = " ".join(bert_plan.warnings(with_settings(recipe(name), settings)))
    assert re.search(words, found) if words else not found


def test_memory_goes_with_the_rows_at_once_not_with_the_batch():
    config = recipe("bert-large-lamb-64k-32k")
    weights, rows = bert_plan.memory(config, config.first)
    more = dataclasses.replace(config.first, micro_rows=128)
    assert bert_plan.memory(config, more) == (weights, 2 * rows)
    assert bert_plan.memory(config, config.first, 1024) == (weights - 4 * plan.parameters(config.model), rows)
    assert bert_plan.memory(dataclasses.replace(config, precision="float32"), config.first)[1] > 1.5 * rows


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: PhaseConfig(steps=1, rows=8, length=16), "predictions, each above 0"),
        (lambda: with_settings(recipe("tiny"), {"second.length": "128"}), "longer than the model.*128.*64"),
        (lambda: with_settings(recipe("tiny"), {"first.steps": "0"}), "has a first phase"),
        (lambda: bert_plan.schedule(with_settings(recipe("tiny"), {"optimizer.warmup": "1"})), "warmup < steps"),
        (lambda: bert_plan.micro_batches(recipe("tiny").second, 3, "second"), "second.rows=4, 3 devices"),
        (lambda: recipe("huge"), "no such recipe.*'huge'.*bert-mini-reviews"),
    ],
)
def test_what_makes_no_run_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_every_field_of_a_published_recipe_carries_its_source(root):
    text = (root / "training" / "bert_recipes.py").read_text()
    for name in PUBLISHED:
        body = text.split(f"def {name.replace('-', '_')}() ")[1].split("\n\n\n")[0]
        fields = [line for line in body.splitlines() if re.match(r"\s+\w+=[^(]+,", line) or re.match(r'\s+"', line)]
        assert len(fields) >= 3
        for line in fields:
            if not line.lstrip().startswith('"""'):
                assert re.search(r"# \[(D19|Y20|S19|N|here)\]", line), line


def test_the_rate_is_that_of_the_step():
    config = recipe("tiny")
    rates = bert_plan.schedule(config)
    by_hand = [3e-2 * (t + 1) / 6 for t in range(6)] + [3e-2 * (60 - t) / 54 for t in range(6, 60)]
    peak = 3e-2 * 0.5**0.5  # 4 rows after 8: half the share of steps that warm up
    by_hand += [peak] + [peak * (20 - t) / 19 for t in range(1, 20)]
    np.testing.assert_allclose([float(rates(t)) for t in range(80)], by_hand, rtol=1e-5)
