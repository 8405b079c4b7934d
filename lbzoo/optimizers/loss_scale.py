"""Dynamic loss scaling for mixed_float16 (Micikevicius et al. 2018): state that only `Update` changes.

float16 loses gradients below 6e-8. The loss is multiplied by a scale before the backward pass and the float32 gradients
are divided by it after the sum over replicas. A gradient that is not finite halves the scale, and the step is skipped;
many clean steps in a row double it. bfloat16 has float32's range and needs none of this.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

import tensorflow as tf

from lbzoo.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class LossScaleConfig:
    """How the scale moves.

    Attributes:
        start: first scale. NVIDIA's mLSTM code starts at 2^32, which float16 (largest value 65504) cannot hold: about
            seventeen skipped steps bring it down, more than a run may skip in a row here.
        growth_interval: so many clean steps in a row multiply the scale by `factor`.
        factor: of growth and of shrinking; a power of two costs no rounding.
        floor: the scale never falls below it.
        cap: the scale never grows above it, so that a stretch of tiny gradients does not lift it to a height from
            which coming down again costs more skipped steps than a run may have.

    Raises:
        ConfigError: not 0 < floor <= start <= cap (all finite), factor <= 1, or growth_interval < 1.
    """

    start: float = 2.0**15
    growth_interval: int = 2000
    factor: float = 2.0
    floor: float = 1.0
    cap: float = 2.0**24

    def __post_init__(self) -> None:
        ordered = 0 < self.floor <= self.start <= self.cap and math.isfinite(self.cap)
        if not (ordered and 1 < self.factor < math.inf and self.growth_interval >= 1):
            raise ConfigError(
                f"a loss scale needs 0 < floor <= start <= cap, factor > 1 and growth_interval >= 1. Received: {self}."
            )


class LossScale:
    """The scale and its count of clean steps, as variables of the current strategy scope.

    Attributes:
        value: float32 scalar, the scale.
        good: int64 scalar, clean steps since the scale last changed.
    """

    def __init__(self, config: LossScaleConfig) -> None:
        self.config = config
        once = dict(trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        self.value = tf.Variable(config.start, dtype=tf.float32, name="loss_scale", **once)
        self.good = tf.Variable(0, dtype=tf.int64, name="good_steps", **once)

    def after_update(self) -> None:
        """Count a clean step; grow where there were enough. In cross-replica context, like `after_skip`."""
        value, good = tf.convert_to_tensor(self.value), tf.convert_to_tensor(self.good) + 1
        due = good >= self.config.growth_interval
        self.value.assign(tf.where(due, tf.minimum(value * self.config.factor, self.config.cap), value))
        self.good.assign(tf.where(due, tf.zeros_like(good), good))

    def after_skip(self) -> None:
        """Shrink after a gradient that was not finite."""
        self.value.assign(tf.maximum(tf.convert_to_tensor(self.value) / self.config.factor, self.config.floor))
        self.good.assign(tf.zeros([], tf.int64))

    def state(self) -> dict[str, Any]:
        """What a training checkpoint must hold."""
        return {"value": self.value, "good": self.good}


def loss_scale_for(policy: str, config: LossScaleConfig) -> Optional[LossScaleConfig]:
    """`config` where the Keras policy of that name needs loss scaling (mixed_float16), else None."""
    return config if policy == "mixed_float16" else None
