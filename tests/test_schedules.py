"""Every schedule against a table worked out by hand, and the rules that set its peak and its warm-up."""

import numpy as np
import pytest
import tensorflow as tf

from lbzoo.errors import ConfigError
from lbzoo.optimizers import schedules
from lbzoo.optimizers.schedules import (
    ConstantThenLinear,
    CosineDecay,
    LinearDecay,
    PolynomialDecay,
    TwoPhase,
    scaled_rate,
    warmup_steps,
)

TABLES = {
    "linear": (LinearDecay(1.0, 10, warmup=4), {0: 0.25, 1: 0.5, 3: 1, 4: 1, 7: 0.5, 9: 1 / 6, 10: 0, 99: 0}),
    "linear to an end": (LinearDecay(1.0, 10, end=0.5), {0: 1, 5: 0.75, 10: 0.5, 11: 0.5}),
    "polynomial": (
        PolynomialDecay(1.0, 10, warmup=2, power=0.5),
        {0: 0.5, 1: 1, 2: 1, 4: 0.8660254, 8: 0.5, 10: 0, 20: 0},
    ),
    "polynomial to an end": (PolynomialDecay(3.0, 4, end=1.0, power=2.0), {0: 3, 1: 2.125, 2: 1.5, 4: 1, 5: 1}),
    "cosine": (
        CosineDecay(1.0, 10, warmup=2, end=0.1),
        {0: 0.5, 1: 1, 2: 1, 4: 0.8681981, 6: 0.55, 8: 0.2318019, 10: 0.1, 11: 0.1},
    ),
    "constant then linear": (
        ConstantThenLinear(2.0, 10, warmup=2, constant=6),
        {0: 1, 1: 2, 3: 2, 6: 2, 7: 1.5, 8: 1, 10: 0, 12: 0},
    ),
    "two phases, each with its own ramp": (
        TwoPhase(LinearDecay(1.0, 6, warmup=2), LinearDecay(0.5, 4, warmup=2)),
        {0: 0.5, 1: 1, 2: 1, 4: 0.5, 5: 0.25, 6: 0.25, 7: 0.5, 8: 0.5, 9: 0.25, 10: 0, 12: 0},
    ),
    # Radford et al. 2017: lr * (1 - update / updates)
    "openai 2017": (schedules.openai_2017(), {0: 5e-4, 500_000: 2.5e-4, 999_999: 5e-10, 1_000_000: 0}),
    # one pass of 2048 rows ends at 3e-3 * 0.27, three passes of 32k rows at 2.59e-3
    "nvidia, large batches": (
        schedules.nvidia_large_batch(),
        {0: 3e-3, 13_687: 2.58939e-3, 50_000: 1.500005e-3, 72_999: 8.10037e-4, 100_000: 1e-8, 200_000: 1e-8},
    ),
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_table(name):
    schedule, table = TABLES[name]
    steps = np.array(list(table))
    rates = np.array(list(table.values()))
    np.testing.assert_allclose(schedule(steps), rates, rtol=1e-5, atol=1e-12)
    for step, rate in table.items():  # an int, and the int64 that an optimizer counts in
        np.testing.assert_allclose(schedule(step), rate, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(schedule(tf.constant(step, tf.int64)), rate, rtol=1e-5, atol=1e-12)
    assert schedule(0).dtype == tf.float32


@pytest.mark.parametrize("name", sorted(schedules.SCHEDULES))
@pytest.mark.parametrize("bad", [{"peak": 0}, {"peak": float("nan")}, {"steps": 0}, {"warmup": 10}, {"end": 2.0}])
def test_a_schedule_that_makes_no_sense_is_refused(name, bad):
    with pytest.raises(ConfigError, match="Received"):
        schedules.SCHEDULES[name](**{"peak": 1.0, "steps": 10, **bad})


def test_a_power_and_a_plateau_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="power > 0"):
        PolynomialDecay(1.0, 10, power=0.0)
    with pytest.raises(ConfigError, match="constant < steps"):
        ConstantThenLinear(1.0, 10, constant=10)


@pytest.mark.parametrize(
    "amount, unit, steps, per_epoch, expected",
    [
        (200, "steps", 1000, 0, 200),
        (0, "epochs", 1000, 0, 0),
        (0.2843, "share", 7038, 0, 2001),  # NVIDIA's BERT, first phase
        (0.1, "share", 1000, 0, 100),
        (20, "epochs", 3519, 39, 780),
        (0.5, "epochs", 100, 39, 20),
    ],
)
def test_warmup_in_steps_shares_and_epochs(amount, unit, steps, per_epoch, expected):
    found = warmup_steps(amount, unit, steps, per_epoch)
    assert found == expected and isinstance(found, int)


@pytest.mark.parametrize(
    "amount, unit, words",
    [(-1, "steps", "not negative"), (1.5, "steps", "whole"), (1, "hours", "hours"), (1, "epochs", "is not known")],
)
def test_a_warmup_that_means_nothing_is_refused(amount, unit, words):
    with pytest.raises(ConfigError, match=words):
        warmup_steps(amount, unit, 100)


@pytest.mark.parametrize(
    "rate, rows, reference, rule, cap, expected",
    [
        (5e-4, 1024, 128, "linear", 0.0, 4e-3),  # NVIDIA's early notes
        (5e-4, 32_768, 128, "linear", 0.0, 0.128),
        (5e-4, 32_768, 128, "linear", 3e-3, 3e-3),
        (5e-3, 512, 32_768, "sqrt", 0.0, 6.25e-4),  # You et al. 2020, from 32k down to 512
        (1e-3, 64, 128, "none", 0.0, 1e-3),
        (1e-2, 64, 0, "none", 3e-3, 3e-3),
    ],
)
def test_batch_scaling(rate, rows, reference, rule, cap, expected):
    np.testing.assert_allclose(scaled_rate(rate, rows, reference, rule, cap), expected, rtol=1e-12)


@pytest.mark.parametrize("rule, reference", [("cubic", 128), ("linear", 0)])
def test_scaling_that_means_nothing_is_refused(rule, reference):
    with pytest.raises(ConfigError, match="Received"):
        scaled_rate(1e-3, 64, reference, rule)
