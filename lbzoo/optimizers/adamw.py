"""AdamW (Loshchilov & Hutter 2019, Algorithm 2): the decay beside the Adam step, both times the scheduled rate.

    w <- w - rate * decay * w
    w <- w - rate * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)

Epsilon stands beside the root of v as it is, as in google-research/bert (which leaves the two corrections out).
"""

from __future__ import annotations

import functools
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from lbzoo._keras import addons_optimizer
from lbzoo.errors import ConfigError
from lbzoo.optimizers.exclusions import NORMS_AND_BIASES, ByName


def adamw(
    learning_rate: Any,
    names: Mapping[str, tf.Variable],
    weight_decay: float = 0.01,
    exclude_from_weight_decay: Optional[Sequence[str]] = None,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
) -> Any:
    """AdamW for the weights in `names`, as BERT is trained with; an optimizer for `lbzoo.optimizers.update.Update`.

    Args:
        learning_rate: start value; `Update` sets it before each step.
        names: the trained variables by our own names, as `model.named_weights()` gives them.
        exclude_from_weight_decay: regular expressions searched for in the names; None for layer norms and biases, as
            in google-research/bert, [] for none.

    Raises:
        ConfigError: a value out of range, patterns that are none.
        MissingPartError: tensorflow-addons is not installed.
    """
    check_moments("AdamW", weight_decay, epsilon, beta_1, beta_2)
    optimizer = _adamw_class()(
        weight_decay=weight_decay, learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon
    )
    chosen = NORMS_AND_BIASES if exclude_from_weight_decay is None else exclude_from_weight_decay
    optimizer.exclude(names, chosen, ())
    return optimizer


def check_moments(name: str, weight_decay: float, epsilon: float, beta_1: float, beta_2: float) -> None:
    """Raise ConfigError where a number of an optimizer with two moments is out of range."""
    if not (weight_decay >= 0 and epsilon > 0 and 0 <= beta_1 < 1 and 0 <= beta_2 < 1):
        raise ConfigError(
            f"{name} needs weight_decay >= 0, epsilon > 0 and betas from 0 to below 1. Received: weight_decay="
            f"{weight_decay}, epsilon={epsilon}, beta_1={beta_1}, beta_2={beta_2}."
        )


@functools.cache
def _adamw_class() -> type:
    """Made when it is first needed, since it needs tensorflow-addons."""

    class AdamW(ByName, addons_optimizer("AdamW")):
        """tensorflow-addons' AdamW, whose decay does not follow the rate by itself, with the decision of `ByName`."""

        def _decayed_wd(self, var_dtype: tf.DType) -> tf.Tensor:
            return super()._decayed_wd(var_dtype) * self._decayed_lr(var_dtype)

    return AdamW
