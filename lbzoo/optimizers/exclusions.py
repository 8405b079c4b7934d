"""Weights that an optimizer neither decays nor adapts, found by our own names.

Public code looks for patterns in a TensorFlow variable's name, which depends on how a model was built, and takes an
empty list for no list. Here a pattern is searched for in the name that checkpoint files use, and `[]` excludes nothing.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Optional, Sequence

import tensorflow as tf

from lbzoo.errors import ConfigError

# Layer norms and biases, and in an mLSTM its biases (b, out_b) and the gains of weight norm.
NORMS_AND_BIASES = ("norm", "bias", r"(?:^|_)b$", r"^g(?:x|h|mx|mh)$")


class ByName:
    """Mixin of an optimizer of Keras' legacy family: every weight has a name, and two lists of patterns look at it.

    The two decisions that tensorflow-addons takes by a variable's name are taken here instead.
    """

    def exclude(
        self, names: Mapping[str, tf.Variable], from_decay: Sequence[str], from_adaptation: Sequence[str]
    ) -> None:
        """Set what is excluded; call it once, before slots are made.

        Args:
            names: the trained variables by name, as `model.named_weights()` gives them.
            from_decay: regular expressions; a weight in whose name one is found is not decayed.
            from_adaptation: the same for the trust ratio.

        Raises:
            ConfigError: patterns that are not a list of regular expressions.
        """
        self.exclude_from_weight_decay = checked_patterns("exclude_from_weight_decay", from_decay)
        self.exclude_from_layer_adaptation = checked_patterns("exclude_from_layer_adaptation", from_adaptation)
        self.weights_by_name = dict(names)
        # under a strategy, what is updated is one replica's part of a variable
        self._name_of = {part.ref(): name for name, variable in names.items() for part in _parts(variable)}

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        unnamed = [variable.name for variable in var_list if variable.ref() not in self._name_of]
        if unnamed:
            raise ConfigError(
                f"an optimizer with exclusions needs the name of every weight it updates. Received: names of "
                f"{', '.join(self.weights_by_name) or 'nothing'}, but not of {', '.join(unnamed)}."
            )
        super()._create_slots(var_list)

    def _do_use_weight_decay(self, variable: tf.Variable) -> bool:
        return not self._found(variable, self.exclude_from_weight_decay)

    def _do_layer_adaptation(self, variable: tf.Variable) -> bool:
        return not self._found(variable, self.exclude_from_layer_adaptation)

    def _found(self, variable: tf.Variable, patterns: Sequence[str]) -> bool:
        return any(re.search(pattern, self._name_of[variable.ref()]) for pattern in patterns)


def checked_patterns(field: str, patterns: Optional[Sequence[str]]) -> list[str]:
    """`patterns` as a list; None is an empty one.

    Raises:
        ConfigError: a single string (which would be read letter by letter), or what is no regular expression.
    """
    if isinstance(patterns, (str, bytes)):
        raise ConfigError(f"{field} is a list of patterns. Received: {patterns!r}. Write [{patterns!r}].")
    for pattern in patterns or ():
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigError(f"{field} holds regular expressions. Received: {pattern!r} ({error}).") from error
    return list(patterns or ())


def _parts(variable: tf.Variable) -> tuple[Any, ...]:
    """A variable and, where a strategy mirrors it, its copy on each local replica."""
    return (variable, *getattr(variable, "values", ()))
