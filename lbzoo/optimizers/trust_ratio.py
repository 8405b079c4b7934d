"""How far a layer may move in one step, as a share of its own norm: the ratio of LAMB, LARS and the per-layer log."""

from __future__ import annotations

from typing import Optional, Tuple

import tensorflow as tf


def trust_ratio(
    weight: tf.Tensor,
    update: tf.Tensor,
    clamp: Optional[Tuple[float, float]] = None,
    decay: float = 0.0,
    coefficient: float = 1.0,
) -> tf.Tensor:
    """coefficient * phi(|weight|) / (|update| + decay * |weight|), float32 scalar; 1 where one of the norms is 0.

    You et al. 2020, Algorithm 2 (LAMB): `update` is the whole direction, its decay included, and phi cuts the norm of
    the weight off at `clamp`, (lowest, highest); without a clamp it is the identity, as in tensorflow-addons.
    You et al. 2017, equation 6 (LARS): `update` is the gradient, the norm of its decay is added, coefficient 0.001.

    Args:
        weight, update: of one layer, the same shape, any floating dtype.
    """
    size, length = (tf.norm(tf.cast(x, tf.float32)) for x in (weight, update))
    phi = size if clamp is None else tf.clip_by_value(size, *clamp)
    ratio = coefficient * phi / (length + decay * size)
    return tf.where((size > 0) & (length > 0), ratio, 1.0)
