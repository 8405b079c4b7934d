"""The one file that names the engine: Keras 2.15 on TensorFlow 2.15.

Everything else asks here for Keras and for optimizers, so that a later Keras is added by changing this file.
"""

from __future__ import annotations

import warnings
from typing import Any, Sequence

import keras
import tensorflow as tf

from lbzoo.errors import MissingPartError

Layer = keras.layers.Layer
Model = keras.Model
Optimizer = keras.optimizers.legacy.Optimizer  # of the family that tensorflow-addons' LAMB belongs to


def add_weight(layer: Any, name: str, shape: Sequence[int], initial: Any) -> tf.Variable:
    """A float32 variable of `layer` that no dtype policy casts behind our back.

    Args:
        layer: the Keras layer or model that owns the variable.
        name: our own name for it; checkpoint files use this name.
        shape: its shape.
        initial: float32 array of that shape, or None for zeros.
    """

    def initializer(shape: Sequence[int], dtype: Any = None, **_: Any) -> tf.Tensor:
        return tf.zeros(shape, tf.float32) if initial is None else tf.constant(initial, tf.float32, shape)

    return layer.add_weight(
        name=name, shape=tuple(shape), dtype=tf.float32, initializer=initializer, experimental_autocast=False
    )


def adam(learning_rate: Any, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-8) -> Any:
    """Adam as published (Kingma & Ba 2015), of the optimizer family that LAMB belongs to."""
    return keras.optimizers.legacy.Adam(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon)


def addons_optimizer(name: str) -> type:
    """A class of tensorflow-addons' optimizers, which is imported when the first one is asked for.

    Raises:
        MissingPartError: tensorflow-addons is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it announces its end of life
            import tensorflow_addons
    except ImportError as error:
        raise MissingPartError(
            f"{name} needs tensorflow-addons, which has no wheel for Windows and for Linux on Arm. Received: {error}. "
            f"Install lbzoo on Linux with x86-64 or on macOS."
        ) from error
    return getattr(tensorflow_addons.optimizers, name)
