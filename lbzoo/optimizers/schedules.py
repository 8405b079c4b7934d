"""Learning rates as functions of the optimizer step; each works on an int, an array or a tensor alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from lbzoo.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class LinearDecay:
    """Rises linearly to `peak` over `warmup` steps, then falls linearly to `end` at `steps`, and stays there.

    Radford et al. 2017: peak 5e-4, no warm-up, to zero over the whole run.
    """

    peak: float
    steps: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        if not (self.peak > 0 and 0 <= self.warmup < self.steps and 0 <= self.end <= self.peak):
            raise ConfigError(
                f"a linear decay needs peak > 0, 0 <= warmup < steps, 0 <= end <= peak. Received: {self}."
            )

    def __call__(self, step: Any) -> tf.Tensor:
        """Rate of the update numbered `step` from 0, float32."""
        step = tf.cast(step, tf.float32)
        rise = (step + 1) / max(self.warmup, 1)
        left = tf.clip_by_value((self.steps - step) / (self.steps - self.warmup), 0.0, 1.0)
        fall = self.end + (self.peak - self.end) * left
        return tf.where(step < self.warmup, self.peak * rise, fall)
