"""LAMB (You et al. 2020): tensorflow-addons' mathematics, our own choice of what is decayed and what is adapted.

    m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g^2
    u  = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon) + decay * w
    w <- w - rate * |w| / |u| * u                                        with ratio 1 where one of the norms is 0

The decay is inside the ratio. The paper's algorithm excludes no weight; published code does, in two ways, so that
"LAMB" alone does not say what a run did: see `PRESETS`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

from lbzoo._keras import addons_optimizer
from lbzoo.errors import ConfigError
from lbzoo.optimizers.adamw import check_moments
from lbzoo.optimizers.exclusions import NORMS_AND_BIASES, ByName
from lbzoo.optimizers.trust_ratio import trust_ratio


@dataclasses.dataclass(frozen=True)
class Preset:
    """Patterns of what one published implementation excludes."""

    exclude_from_weight_decay: Tuple[str, ...]
    exclude_from_layer_adaptation: Tuple[str, ...]


PRESETS: Mapping[str, Preset] = {
    # Algorithm 2 as printed: every weight is decayed and adapted
    "paper": Preset((), ()),
    # tensorflow/models, ALBERT: layer norms and biases take plain Adam steps without decay
    "tf-models": Preset(NORMS_AND_BIASES, NORMS_AND_BIASES),
    # NVIDIA DeepLearningExamples, TensorFlow 2 BERT: they are not decayed, but adapted
    "nvidia": Preset(NORMS_AND_BIASES, ()),
}


def lamb(
    learning_rate: Any,
    names: Mapping[str, tf.Variable],
    preset: str = "paper",
    weight_decay: float = 0.01,
    exclude_from_weight_decay: Optional[Sequence[str]] = None,
    exclude_from_layer_adaptation: Optional[Sequence[str]] = None,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
) -> Any:
    """LAMB for the weights in `names`; an optimizer for `lbzoo.optimizers.update.Update`.

    Args:
        learning_rate: start value; `Update` sets it before each step.
        names: the trained variables by our own names, as `model.named_weights()` gives them.
        preset: a name in `PRESETS`.
        exclude_from_weight_decay: regular expressions searched for in the names; None for the preset's, [] for none.
        exclude_from_layer_adaptation: the same for the trust ratio. The two lists do not follow one another.

    Returns:
        an optimizer of the family in `lbzoo._keras`, with `trust_ratios()` for a log.

    Raises:
        ConfigError: an unknown preset, a value out of range, patterns that are none.
        MissingPartError: tensorflow-addons is not installed.
    """
    if preset not in PRESETS:
        raise ConfigError(f"there is no such LAMB. Received: preset={preset!r}. Known: {', '.join(PRESETS)}.")
    check_moments("LAMB", weight_decay, epsilon, beta_1, beta_2)
    optimizer = _lamb_class()(
        learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, weight_decay=weight_decay
    )
    given, base = (exclude_from_weight_decay, exclude_from_layer_adaptation), dataclasses.astuple(PRESETS[preset])
    optimizer.exclude(names, *(usual if own is None else own for own, usual in zip(given, base)))
    return optimizer


@functools.cache
def _lamb_class() -> type:
    """Made when it is first needed, since it needs tensorflow-addons."""

    class LAMB(ByName, addons_optimizer("LAMB")):
        """tensorflow-addons' LAMB with the two decisions of `ByName`."""

        def direction(self, variable: tf.Variable) -> tf.Tensor:
            """u of the module's equations for the last step, at the weight as it is now; the variable's shape."""
            step = tf.cast(tf.maximum(self.iterations, 1), tf.float32)
            m, v = (
                self.get_slot(variable, slot) / (1 - self._get_hyper(beta, tf.float32) ** step)
                for slot, beta in (("m", "beta_1"), ("v", "beta_2"))
            )
            update = m / (tf.sqrt(v) + self.epsilon)
            if self._do_use_weight_decay(variable):
                update += self._get_hyper("weight_decay", tf.float32) * variable
            return update

        def trust_ratios(self) -> dict[str, tf.Tensor]:
            """Of every adapted weight by name, float32 scalars: the ratio that `direction` has now."""
            adapted = {k: w for k, w in self.weights_by_name.items() if self._do_layer_adaptation(w)}
            return {name: trust_ratio(weight, self.direction(weight)) for name, weight in adapted.items()}

    return LAMB
