"""Learning rates as functions of the optimizer step; each works on an int, an array or a tensor alike.

A schedule rises linearly over its warm-up, to the peak in the warm-up's last step, and falls from there in its own way.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping

import tensorflow as tf

from lbzoo.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class LinearDecay:
    """Rises linearly to `peak` over `warmup` steps, then falls linearly to `end` at `steps`, and stays there.

    Radford et al. 2017: peak 5e-4, no warm-up, to zero over the whole run.

    Raises:
        ConfigError: not peak > 0, 0 <= warmup < steps and 0 <= end <= peak; the same for each decay below.
    """

    peak: float
    steps: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.peak < math.inf and 0 <= self.warmup < self.steps and 0 <= self.end <= self.peak):
            raise ConfigError(f"a decay needs peak > 0, 0 <= warmup < steps and 0 <= end <= peak. Received: {self}.")

    def __call__(self, step: Any) -> tf.Tensor:
        """Rate of the update numbered `step` from 0, float32."""
        step = tf.cast(step, tf.float32)
        rise = (step + 1) / max(self.warmup, 1)
        left = tf.clip_by_value((self.steps - step) / (self.steps - self._fall_from()), 0.0, 1.0)
        fall = self.end + (self.peak - self.end) * self._height(left)
        return tf.where(step < self.warmup, self.peak * rise, fall)

    def _fall_from(self) -> int:
        """The last step at the peak."""
        return self.warmup

    def _height(self, left: tf.Tensor) -> tf.Tensor:
        """Height between end (0) and peak (1) where the share `left` of the fall lies ahead."""
        return left


@dataclasses.dataclass(frozen=True)
class PolynomialDecay(LinearDecay):
    """`LinearDecay` with the falling line raised to `power`: 1 in You et al. 2020, 0.5 in NVIDIA's BERT with LAMB."""

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.power < math.inf:
            raise ConfigError(f"a polynomial decay needs power > 0. Received: {self}.")

    def _height(self, left: tf.Tensor) -> tf.Tensor:
        return left**self.power


@dataclasses.dataclass(frozen=True)
class CosineDecay(LinearDecay):
    """Falls along half a cosine (Loshchilov & Hutter 2017, without restarts)."""

    def _height(self, left: tf.Tensor) -> tf.Tensor:
        return 0.5 - 0.5 * tf.cos(math.pi * left)


@dataclasses.dataclass(frozen=True)
class ConstantThenLinear(LinearDecay):
    """Stays at `peak` up to step `constant`, counted from the start of the run, then falls linearly to `end`."""

    constant: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.constant < self.steps:
            raise ConfigError(f"a constant rate that then decays needs 0 <= constant < steps. Received: {self}.")

    def _fall_from(self) -> int:
        return max(self.warmup, self.constant)


@dataclasses.dataclass(frozen=True)
class TwoPhase:
    """`first` for its own steps, then `second` from its step 0: the rate rises and falls once more.

    You et al. 2020 pre-train BERT so: batch 64k at length 128, then 32k at length 512 with a warm-up of its own, since
    the second phase is another optimization problem.
    """

    first: LinearDecay
    second: LinearDecay

    @property
    def steps(self) -> int:
        """Of both phases."""
        return self.first.steps + self.second.steps

    def __call__(self, step: Any) -> tf.Tensor:
        """Rate of the update numbered `step` from 0, float32."""
        step = tf.cast(step, tf.float32)
        return tf.where(step < self.first.steps, self.first(step), self.second(step - self.first.steps))


# What a configuration calls them.
SCHEDULES: Mapping[str, type] = {
    "linear": LinearDecay,
    "polynomial": PolynomialDecay,
    "cosine": CosineDecay,
    "constant-linear": ConstantThenLinear,
}


def warmup_steps(amount: float, unit: str, steps: int, steps_per_epoch: int = 0) -> int:
    """A warm-up in steps.

    Args:
        amount: how much, in `unit`: "steps", "share" (of `steps`) or "epochs" (passes of `steps_per_epoch`).

    Raises:
        ConfigError: an unknown unit, a negative amount, steps that are not whole, or epochs of unknown length.
    """
    if amount < 0 or unit not in ("steps", "share", "epochs") or (unit == "steps" and amount != int(amount)):
        raise ConfigError(
            f"a warm-up is a whole number of steps, a share of the run or a number of epochs, and not negative. "
            f"Received: {amount} {unit}."
        )
    if unit == "epochs" and amount and steps_per_epoch < 1:
        raise ConfigError(f"how many steps an epoch has is not known here. Received: a warm-up of {amount} epochs.")
    return round(amount * {"steps": 1, "share": steps, "epochs": steps_per_epoch}[unit])


def scaled_rate(rate: float, rows: int, reference_rows: int, rule: str, cap: float = 0.0) -> float:
    """`rate`, which is right for a batch of `reference_rows`, carried over to a batch of `rows`.

    Args:
        rule: "linear" (Goyal et al. 2017), "sqrt" (You et al. 2020) or "none".
        cap: the result is at most this; 0 for no limit.

    Raises:
        ConfigError: an unknown rule, or a batch below one row.
    """
    powers = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}
    if rule not in powers or (rule != "none" and min(rows, reference_rows) < 1):
        raise ConfigError(
            f"a rate is scaled by one of {', '.join(powers)} between batches of at least one row. "
            f"Received: rule {rule!r}, {rows} rows, {reference_rows} reference rows."
        )
    scaled = rate if rule == "none" else rate * (rows / reference_rows) ** powers[rule]
    return min(scaled, cap) if cap else scaled


def openai_2017() -> LinearDecay:
    """Radford et al. 2017: Adam at 5e-4, linear to zero over 1,000,000 updates of 128 rows."""
    return LinearDecay(5e-4, 1_000_000)


def nvidia_large_batch() -> LinearDecay:
    """NVIDIA sentiment-discovery, batches from 2048 rows to 32k: 3e-3, linear over 100,000 steps, whatever the run.

    The published runs end before it does (73,000 steps of 2048 rows; 13,688 of 32,768 rows end at 2.59e-3). The code
    takes max(rate, 1e-8); this line to 1e-8 differs from that by less than 1e-8.
    """
    return LinearDecay(3e-3, 100_000, end=1e-8)
