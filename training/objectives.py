"""What an mLSTM run minimises: the next byte, and at every byte the sentiment of the text so far."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from lbzoo._keras import Layer, add_weight
from lbzoo.errors import ConfigError
from lbzoo.transfer.probe import Probe

BITS = 1 / math.log(2)


class SentimentReadOut(Layer):
    """Hidden state [..., units] -> log-odds that the text so far is positive [...], float32: h . w + b."""

    def __init__(self, units: int) -> None:
        super().__init__(name="read_out", autocast=False)
        self.w = add_weight(self, "w", [units], np.zeros(units, np.float32))
        self.b = add_weight(self, "b", [], np.zeros([], np.float32))
        self.built = True

    def start_from(self, probe: Probe) -> None:
        """Take over what `training.publish.read_out_probe` wrote; units that it does not know begin at zero.

        Raises:
            ConfigError: the probe reads another state than the last hidden one, or has other than two classes.
        """
        form = (probe.state, probe.pool, probe.tanh, len(probe.coef))
        if form != ("hidden", "last", False, 1) or probe.coef.shape[1] > self.w.shape[0]:
            raise ConfigError(
                "a read-out starts from a probe of two classes on the last hidden state of at most as many units. "
                f"Received: state={probe.state!r}, pool={probe.pool!r}, tanh={probe.tanh}, shape {probe.coef.shape}."
            )
        self.w.assign(np.pad(probe.coef[0], (0, self.w.shape[0] - probe.coef.shape[1])))
        self.b.assign(probe.intercept[0])

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        """See the class."""
        return tf.linalg.matvec(tf.cast(hidden, tf.float32), self.w) + self.b


def language_model_loss(logits: tf.Tensor, next_ids: tf.Tensor) -> tf.Tensor:
    """Mean cross-entropy of the next byte, in nats; times `BITS`, bits per character."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(next_ids, logits))


def sentiment_loss(scores: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Mean divergence in nats between two Bernoulli distributions, both given as log-odds [batch, time].

    Zero where the read-out agrees with the target, however unsure the target is.
    """
    wanted = tf.sigmoid(target)
    cross = tf.nn.sigmoid_cross_entropy_with_logits(wanted, scores)
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(wanted, target)
    return tf.reduce_mean(cross - entropy)
