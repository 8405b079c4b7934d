"""BERT (Devlin et al. 2019) as Keras models: the encoder, and the heads of pre-training and fine-tuning.

The algebra is in `bert_layers`; a model owns the variables, one for each tensor of a checkpoint.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Any, ClassVar, Mapping, NamedTuple, Optional, Sequence, Type, Union

import numpy as np
import tensorflow as tf

from lbzoo._keras import add_weight
from lbzoo.errors import ConfigError
from lbzoo.models.base import ZooModel
from lbzoo.models.bert_layers import (
    Dropout,
    Shape,
    Weights,
    at_positions,
    dense,
    encode,
    first_token,
    fused,
    masked_lm_logits,
    pooled,
)
from lbzoo.models.config import BertConfig

if TYPE_CHECKING:
    from lbzoo.text.vocabulary import Vocabulary

Inputs = Union[tf.Tensor, Mapping[str, tf.Tensor]]


class EncoderOutput(NamedTuple):
    """What the encoder gives: `hidden` float32 [batch, time, units], `pooled` float32 [batch, units] or None."""

    hidden: tf.Tensor
    pooled: Optional[tf.Tensor]


class PreTrainingLogits(NamedTuple):
    """`masked_lm` float32 [batch, positions, vocab_size]; `next_sentence` float32 [batch, 2], class 0 "is next"."""

    masked_lm: tf.Tensor
    next_sentence: tf.Tensor


def initial_weights(config: BertConfig, seed: int) -> dict[str, np.ndarray]:
    """Start values: normal cut off at two standard deviations for kernels and embeddings, biases 0, gains 1.

    Each tensor's values follow from the seed and its name, whatever other tensors there are.
    """
    return {name: _initial(config, seed, name, shape) for name, shape in config.shapes().items()}


def _initial(config: BertConfig, seed: int, name: str, shape: Sequence[int]) -> np.ndarray:
    if name.endswith(("bias", "beta")):
        return np.zeros(shape, np.float32)
    if name.endswith("gamma"):
        return np.ones(shape, np.float32)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = rng.standard_normal(shape, np.float32)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = rng.standard_normal(int(beyond.sum()), np.float32)
    return values * np.float32(config.initializer_range)


class _Bert(ZooModel):
    """What the classes below share; each is for one `head` of the configuration.

    Args:
        config: sizes, and the head.
        text: "uncased" or "cased", how a text is prepared for the vocabulary.
        card: what is known about the weights: name, source, licence, results.
        vocabulary: the word pieces, which a saved checkpoint holds beside the weights; None where texts play no part.
        seed: of the random start values; None leaves zeros for a loader that assigns every weight.
        dtype: a Keras policy name: "float32", "mixed_float16" or "mixed_bfloat16". Matrix products run in its compute
            dtype; variables, sums, layer norm, softmax and results are float32 under each.

    Raises:
        ConfigError: a configuration with another head, or with fewer word pieces than the vocabulary.
    """

    head: ClassVar[Optional[str]] = None

    def __init__(
        self,
        config: BertConfig,
        text: str = "uncased",
        card: Optional[Mapping[str, Any]] = None,
        vocabulary: Optional[Vocabulary] = None,
        seed: Optional[int] = 0,
        dtype: Optional[str] = None,
    ) -> None:
        super().__init__(name="bert", dtype=dtype, autocast=False)
        if not isinstance(config, BertConfig) or config.head != self.head:
            raise ConfigError(
                f"{type(self).__name__} takes a BertConfig with head={self.head!r} (see `with_head`). "
                f"Received: {config!r:.300}."
            )
        if vocabulary is not None and len(vocabulary) > config.vocab_size:
            raise ConfigError(
                f"the vocabulary must fit into vocab_size={config.vocab_size}. Received: {len(vocabulary)}."
            )
        self.config, self.text, self.card, self.vocabulary = config, text, dict(card or {}), vocabulary
        self._named = {
            name: add_weight(self, name, shape, None if seed is None else _initial(config, seed, name, shape))
            for name, shape in config.shapes().items()
        }
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Every variable by the name that checkpoint files use, in a fixed order."""
        return dict(self._named)

    def call(
        self,
        ids: Inputs,
        segments: Optional[tf.Tensor] = None,
        mask: Optional[tf.Tensor] = None,
        training: Optional[bool] = None,
        seed: Optional[tf.Tensor] = None,
        dropout: bool = True,
        starts: Optional[tf.Tensor] = None,
        **more: tf.Tensor,
    ) -> Any:
        """Run the model.

        Args:
            ids: integers [batch, time] below `vocab_size`, or a mapping that holds them and the next two by name.
            segments: integers [batch, time] below `type_vocab_size`; None for segment 0 all through.
            mask: bool or integers [batch, time], not 0 where there is a token; None for everywhere.
            training: True turns dropout on, and the operations that are fastest with their gradient.
            seed: of dropout, see `bert_layers.Dropout`.
            dropout: False trains without it.
            starts: int32 [batch], the position of each row's first token, with room for the row behind it; None for 0.

        Raises:
            ConfigError: more than `max_position_embeddings` tokens in a row.
        """
        given = {"ids": ids, "segments": segments, "mask": mask, **more}
        if isinstance(ids, Mapping):
            given.update(ids)
        ids = tf.convert_to_tensor(given.pop("ids"))
        if ids.shape[1] is not None and ids.shape[1] > self.config.max_position_embeddings:
            raise ConfigError(
                f"this model reads at most {self.config.max_position_embeddings} tokens. Received: {ids.shape[1]}."
            )
        shape = tuple(ids.shape[axis] or tf.shape(ids)[axis] for axis in (0, 1))
        drop = Dropout(bool(training), seed, shape[0], dropout)
        w = fused(self._named, self.config, tf.as_dtype(self.compute_dtype))
        first_only = self.head in ("classifier", "regressor")
        x = encode(
            w, self.config, ids, given.pop("segments"), given.pop("mask"), drop, first_only=first_only, starts=starts
        )
        return self._output(w, x, shape, drop, **given)

    def _output(self, w: Weights, x: tf.Tensor, shape: Shape, drop: Dropout) -> Any:
        """Vectors [batch * time, units], or of a classifier or regressor [batch, units] -> what the model gives."""
        raise NotImplementedError

    def with_head(self, head: Optional[str], labels: Sequence[str] = (), seed: int = 0) -> "_Bert":
        """A new model with these weights and another head, whose own weights are random.

        A masked-lm head is taken along from pre-training to masked-lm and back. The pooler is kept where there is one,
        added where the new head needs one, and left out of "masked-lm", which does not read it.

        Args:
            head: one of `HEADS`, or None for the encoder.
            labels: a classifier's classes.
            seed: of the new weights.
        """
        pooler = head != "masked-lm" and (self.config.pooler or head is not None)
        config = dataclasses.replace(self.config, head=head, labels=tuple(labels), pooler=pooler)
        model = model_for(config)(config, self.text, self.card, self.vocabulary, seed, self.dtype_policy.name)
        for name, variable in model.named_weights().items():
            if name in self._named and (name not in config.head_shapes() or name.startswith("mlm/")):
                variable.assign(self._named[name])
        return model

    def in_precision(self, dtype: str) -> "_Bert":
        """The same weights under another Keras policy; itself where it is that one."""
        if self.dtype_policy.name == dtype:
            return self
        return _rebuilt(self.config, self.text, self.card, self.vocabulary, dtype, self._named)

    def __reduce__(self) -> tuple:
        """Pickled and copied as configuration and numbers."""
        weights = {name: variable.numpy() for name, variable in self._named.items()}
        form = (self.config, self.text, self.card, self.vocabulary, self.dtype_policy.name)
        return _rebuilt, (*form, weights)


class BertEncoder(_Bert):
    """Token ids -> `EncoderOutput`: the vector of every token, and the pooled output where there is a pooler."""

    head = None

    def _output(self, w: Weights, x: tf.Tensor, shape: Shape, drop: Dropout) -> EncoderOutput:
        hidden = tf.reshape(x, [*shape, self.config.hidden_size])
        return EncoderOutput(hidden, pooled(w, hidden[:, 0]) if self.config.pooler else None)


class BertForMaskedLM(_Bert):
    """Token ids -> logits over the vocabulary, float32 [batch, positions, vocab_size].

    `positions`, integers [batch, n], says where they are wanted; without it they come for all tokens.
    """

    head = "masked-lm"

    def _output(
        self, w: Weights, x: tf.Tensor, shape: Shape, drop: Dropout, positions: Optional[tf.Tensor] = None
    ) -> tf.Tensor:
        return _masked_lm(self.config, w, x, shape, positions, drop.training)


class BertForPreTraining(_Bert):
    """Token ids (and `positions`, as in `BertForMaskedLM`) -> `PreTrainingLogits`."""

    head = "pretraining"

    def _output(
        self, w: Weights, x: tf.Tensor, shape: Shape, drop: Dropout, positions: Optional[tf.Tensor] = None
    ) -> PreTrainingLogits:
        following = dense(w, "nsp", pooled(w, first_token(x, shape)))
        return PreTrainingLogits(
            _masked_lm(self.config, w, x, shape, positions, drop.training), tf.cast(following, tf.float32)
        )


class BertClassifier(_Bert):
    """Token ids -> logits, float32 [batch, classes], in the order of `config.labels`."""

    head = "classifier"

    def _output(self, w: Weights, x: tf.Tensor, shape: Shape, drop: Dropout) -> tf.Tensor:
        return _on_pooled(self.config, w, x, drop)


class BertRegressor(_Bert):
    """Token ids -> a number, float32 [batch]."""

    head = "regressor"

    def _output(self, w: Weights, x: tf.Tensor, shape: Shape, drop: Dropout) -> tf.Tensor:
        return _on_pooled(self.config, w, x, drop)[:, 0]


def model_for(config: BertConfig) -> Type[_Bert]:
    """The class for the head of a configuration."""
    kinds = (BertEncoder, BertForMaskedLM, BertForPreTraining, BertClassifier, BertRegressor)
    return next(kind for kind in kinds if kind.head == config.head)


def _masked_lm(
    config: BertConfig, w: Weights, x: tf.Tensor, shape: Shape, positions: Optional[tf.Tensor], training: bool
) -> tf.Tensor:
    x = x if positions is None else at_positions(x, shape, positions)
    return tf.reshape(masked_lm_logits(w, config, x, training), [shape[0], -1, config.vocab_size])


def _on_pooled(config: BertConfig, w: Weights, x: tf.Tensor, drop: Dropout) -> tf.Tensor:
    rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
    return tf.cast(dense(w, config.head, drop(pooled(w, x), rate)), tf.float32)


def _rebuilt(
    config: BertConfig,
    text: str,
    card: Mapping[str, Any],
    vocabulary: Optional[Vocabulary],
    dtype: str,
    weights: Mapping[str, Any],
) -> _Bert:
    model = model_for(config)(config, text, card, vocabulary, None, dtype)
    for name, variable in model.named_weights().items():
        variable.assign(weights[name])
    return model
