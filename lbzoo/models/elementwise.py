"""Functions of each value by itself, for training: one compiled kernel forward and one back.

Differentiated operation by operation, GELU and dropout go through memory some twenty times each.
"""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf


def one_kernel(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """`function`, of x and of arguments without a gradient, to values of the shape and dtype of x, made fast to train.

    The kernels compute in float32, take x of any floating dtype and give that dtype; of the forward pass only x is
    kept. `function` itself runs, in the dtype of x, where x has no fixed shape, since each one is compiled anew (30 ms,
    0.7 MB a kernel), and where there is a GPU: to compile for it takes parts of CUDA that pip does not always bring.
    Outside of a graph every shape is fixed, so that training on many lengths belongs into a tf.function.
    """

    def in_float32(x: tf.Tensor, *given: Any) -> tf.Tensor:
        return tf.cast(function(tf.cast(x, tf.float32), *given), x.dtype)

    forward = tf.function(in_float32, jit_compile=True, autograph=False)

    def gradient(x: tf.Tensor, dy: tf.Tensor, *given: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_float32(x, *given)
        return tape.gradient(y, x, dy)

    backward = tf.function(gradient, jit_compile=True, autograph=False)

    def call(x: tf.Tensor, *given: Any) -> tf.Tensor:
        if not x.shape.is_fully_defined() or tf.config.list_physical_devices("GPU"):
            return function(x, *given)
        return tf.custom_gradient(lambda x: (forward(x, *given), lambda dy: backward(x, dy, *given)))(x)

    return call
