"""LARS (You, Gitman & Ginsburg 2017, "Large Batch Training of Convolutional Networks", Algorithm 1).

    local = coefficient * |w| / (|g| + decay * |w|)
    v    <- momentum * v + rate * local * (g + decay * w)
    w    <- w - v

A weight that is excluded from adaptation, or has no norm yet, has local = 1.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from lbzoo._keras import Optimizer
from lbzoo.errors import ConfigError
from lbzoo.optimizers.exclusions import ByName
from lbzoo.optimizers.trust_ratio import trust_ratio


class _WithMomentum(Optimizer):
    """Keras' legacy optimizer with one slot a variable."""

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            self.add_slot(variable, "momentum")


class LARS(ByName, _WithMomentum):
    """LARS for the weights in `names`; an optimizer for `lbzoo.optimizers.update.Update`.

    Args:
        learning_rate: the global rate; start value, `Update` sets it before each step.
        names: the trained variables by our own names, as `model.named_weights()` gives them.
        weight_decay: 5e-4 in the paper's runs.
        coefficient: eta of the paper, 0.001 in its runs.
        clamp: (lowest, highest) norm of a weight that the ratio counts with; None for the norm itself, as published.
        exclude_from_weight_decay, exclude_from_layer_adaptation: regular expressions searched for in the names; None
            or [] for none. The two lists do not follow one another.

    Raises:
        ConfigError: a value out of range, patterns that are none.
    """

    def __init__(
        self,
        learning_rate: Any,
        names: Mapping[str, tf.Variable],
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        coefficient: float = 0.001,
        clamp: Optional[Tuple[float, float]] = None,
        exclude_from_weight_decay: Optional[Sequence[str]] = None,
        exclude_from_layer_adaptation: Optional[Sequence[str]] = None,
    ) -> None:
        super().__init__(name="LARS")
        if not (0 <= momentum < 1 and weight_decay >= 0 and coefficient > 0):
            raise ConfigError(
                f"LARS needs a momentum from 0 to below 1, weight_decay >= 0 and coefficient > 0. Received: momentum="
                f"{momentum}, weight_decay={weight_decay}, coefficient={coefficient}."
            )
        self._set_hyper("learning_rate", learning_rate)
        self.momentum, self.weight_decay, self.coefficient, self.clamp = momentum, weight_decay, coefficient, clamp
        self.exclude(names, exclude_from_weight_decay, exclude_from_layer_adaptation)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None) -> tf.Operation:
        place = var.device, var.dtype.base_dtype
        rate = (apply_state.get(place) or self._fallback_apply_state(*place))["lr_t"]
        decay = self.weight_decay if self._do_use_weight_decay(var) else 0.0
        if self._do_layer_adaptation(var):
            rate *= trust_ratio(var, grad, self.clamp, decay, self.coefficient)
        velocity = self.get_slot(var, "momentum")
        velocity = velocity.assign(self.momentum * velocity + rate * (grad + decay * var))
        return var.assign_sub(velocity)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, apply_state: Any = None):
        """Rows that are named twice are summed before this is called."""
        dense = tf.scatter_nd(indices[:, None], grad, tf.shape(var, out_type=indices.dtype))
        return self._resource_apply_dense(dense, var, apply_state)
