"""Frozen model configurations: what a checkpoint's `config.json` holds."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional, Tuple, Union

from lbzoo.errors import ConfigError
from lbzoo.text.clean import POLICIES
from lbzoo.text.vocabulary import READINGS


@dataclasses.dataclass(frozen=True)
class MLSTMConfig:
    """Shape of a multiplicative LSTM (Krause et al. 2016; Radford et al. 2017).

    Attributes:
        units: width of the hidden state `h` and the cell state `c`.
        vocab_size: number of token ids; 256 for bytes.
        embedding_dim: width of a token's embedding.
        weight_norm: True for the training form (a direction `v` and a gain `g` per output column of
            wx, wh, wmx, wmh), False for the folded form (one plain matrix each).
        output: whether the next-token output layer is part of the model.

    Raises:
        ConfigError: a size that is not a positive integer, or a flag that is not a bool.
    """

    units: int
    vocab_size: int = 256
    embedding_dim: int = 64
    weight_norm: bool = True
    output: bool = True

    def __post_init__(self) -> None:
        for name in ("units", "vocab_size", "embedding_dim"):
            _require_positive_integer(name, getattr(self, name))
        for name in ("weight_norm", "output"):
            _require_flag(name, getattr(self, name))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "MLSTMConfig":
        """Build from a mapping; an unknown or missing key raises ConfigError."""
        return _from_dict(cls, values)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for `config.json`."""
        return dataclasses.asdict(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor of a checkpoint by its name, in the order of `MLSTMLanguageModel.named_weights`."""
        n, e, v = self.units, self.embedding_dim, self.vocab_size
        shapes = {"embedding": (v, e), "wx": (e, 4 * n), "wh": (n, 4 * n), "wmx": (e, n), "wmh": (n, n), "b": (4 * n,)}
        if self.weight_norm:
            shapes.update(gx=(4 * n,), gh=(4 * n,), gmx=(n,), gmh=(n,))
        if self.output:
            shapes.update(out_w=(n, v), out_b=(v,))
        return shapes


ACTIVATIONS = ("gelu_erf", "gelu_tanh", "relu", "silu", "tanh")
HEADS = ("masked-lm", "pretraining", "classifier", "regressor")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape of a BERT (Devlin et al. 2019) under the names of the public configurations, and what stands on it.

    Attributes:
        vocab_size: number of word pieces.
        hidden_size: width of a token's vector; also `units`.
        num_hidden_layers: transformer layers.
        num_attention_heads: heads of each; they divide `hidden_size`.
        intermediate_size: width inside the feed-forward part.
        hidden_act: "gelu_erf" (exact), "gelu_tanh" (the approximation in Google's code), "relu", "silu" or "tanh".
        hidden_dropout_prob: after the embeddings and after each dense layer that is added to what it read.
        attention_probs_dropout_prob: on attention weights.
        max_position_embeddings: longest sequence.
        type_vocab_size: number of segments.
        initializer_range: standard deviation of the random start values, cut off at twice that.
        layer_norm_eps: added to the variance in layer norm.
        pooler: whether there is a dense tanh layer on the first token.
        head: None, "masked-lm", "pretraining" (masked-lm and next sentence), "classifier" or "regressor".
        labels: names of a classifier's classes, in the order of its outputs; for no other head.
        classifier_dropout: before a classifier or regressor; None takes `hidden_dropout_prob`.

    Raises:
        ConfigError: a value of another kind or outside its range, or fields that do not go together.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str = "gelu_erf"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pooler: bool = True
    head: Optional[str] = None
    labels: Tuple[str, ...] = ()
    classifier_dropout: Optional[float] = None

    def __post_init__(self) -> None:
        for name in _BERT_SIZES:
            _require_positive_integer(name, getattr(self, name))
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                "num_attention_heads must divide hidden_size. Received: "
                f"hidden_size={self.hidden_size}, num_attention_heads={self.num_attention_heads}."
            )
        _require_choice("hidden_act", self.hidden_act, ACTIVATIONS)
        dropouts = ["hidden_dropout_prob", "attention_probs_dropout_prob"]
        for name in dropouts if self.classifier_dropout is None else [*dropouts, "classifier_dropout"]:
            _require_number(name, getattr(self, name), lambda value: 0 <= value < 1, "from 0 to below 1")
        for name in ("initializer_range", "layer_norm_eps"):
            _require_number(name, getattr(self, name), lambda value: 0 < value < 1, "between 0 and 1")
        _require_flag("pooler", self.pooler)
        _require_choice("head", self.head, (None, *HEADS))
        if self.head not in (None, "masked-lm") and not self.pooler:
            raise ConfigError(f"a {self.head} head stands on the pooler. Received: pooler=False.")
        self._set_labels()

    def _set_labels(self) -> None:
        labels = self.labels
        listed = isinstance(labels, (list, tuple)) and all(isinstance(n, str) and n for n in labels)
        if not listed or len(set(labels)) < len(labels) or (len(labels) >= 2) != (self.head == "classifier"):
            raise ConfigError(
                "labels must be two or more different names for a classifier, and none else. "
                f"Received: head={self.head!r}, labels={labels!r:.200}."
            )
        object.__setattr__(self, "labels", tuple(labels))  # JSON has lists

    @property
    def units(self) -> int:
        """Width of the features, as an mLSTM's `units`."""
        return self.hidden_size

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BertConfig":
        """Build from a mapping; an unknown or missing key raises ConfigError."""
        return _from_dict(cls, values)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for `config.json`."""
        return {**dataclasses.asdict(self), "labels": list(self.labels)}

    def encoder(self) -> "BertConfig":
        """The same without what stands on it."""
        return dataclasses.replace(self, head=None, labels=(), classifier_dropout=None)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor of a checkpoint by its name; kernels are [in, out]."""
        h, inner = self.hidden_size, self.intermediate_size
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings/token": (self.vocab_size, h),
            "embeddings/position": (self.max_position_embeddings, h),
            "embeddings/segment": (self.type_vocab_size, h),
            **_layer_norm_shapes("embeddings", h),
        }
        for i in range(self.num_hidden_layers):
            for name in ("query", "key", "value", "output"):
                shapes.update(_dense_shapes(f"layer_{i}/attention/{name}", h, h))
            shapes.update(_layer_norm_shapes(f"layer_{i}/attention", h))
            shapes.update(_dense_shapes(f"layer_{i}/ffn/inner", h, inner))
            shapes.update(_dense_shapes(f"layer_{i}/ffn/output", inner, h))
            shapes.update(_layer_norm_shapes(f"layer_{i}/ffn", h))
        if self.pooler:
            shapes.update(_dense_shapes("pooler", h, h))
        return {**shapes, **self.head_shapes()}

    def head_shapes(self) -> dict[str, tuple[int, ...]]:
        """The part of `shapes` that belongs to the head; the decoder of masked-lm is the token embedding."""
        h, shapes = self.hidden_size, {}
        if self.head in ("masked-lm", "pretraining"):
            shapes.update(_dense_shapes("mlm/transform", h, h), **_layer_norm_shapes("mlm", h))
            shapes["mlm/bias"] = (self.vocab_size,)
        if self.head == "pretraining":
            shapes.update(_dense_shapes("nsp", h, 2))
        if self.head in ("classifier", "regressor"):
            shapes.update(_dense_shapes(self.head, h, len(self.labels) or 1))
        return shapes


Config = Union[MLSTMConfig, BertConfig]

# the architectures of config.json and of the manifest; neither chooses a class by an import path
CONFIGS = {"mlstm": MLSTMConfig, "bert": BertConfig}

# how a text is prepared, by architecture: a policy of bytes, or which WordPiece
TEXTS = {"mlstm": tuple(POLICIES), "bert": tuple(READINGS)}


def architecture_of(config: Any) -> str:
    """The name in `CONFIGS` for a configuration.

    Raises:
        ConfigError: an object of another kind.
    """
    for name, kind in CONFIGS.items():
        if type(config) is kind:
            return name
    raise ConfigError(f"no architecture of lbzoo has this config. Received: {type(config).__name__}.")


_BERT_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size"),
)


def _dense_shapes(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _layer_norm_shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/layer_norm/gamma": (width,), f"{name}/layer_norm/beta": (width,)}


def _require_positive_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a positive integer. Received: {name}={value!r}.")


def _require_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false. Received: {name}={value!r}.")


def _require_number(name: str, value: Any, allowed: Callable[[float], bool], form: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not allowed(value):
        raise ConfigError(f"{name} must be a number {form}. Received: {name}={value!r}.")


def _require_choice(name: str, value: Any, choices: Tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(map(str, choices))}. Received: {name}={value!r}.")


def _from_dict(cls, values: Mapping[str, Any]):
    if not isinstance(values, Mapping):
        raise ConfigError(f"a {cls.__name__} is made from a mapping. Received: {type(values).__name__}.")
    known = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(
            f"a {cls.__name__} has the fields {', '.join(known)}. Received: unknown {', '.join(map(str, unknown))}."
        )
    missing = [n for n, f in known.items() if f.default is dataclasses.MISSING and n not in values]
    if missing:
        raise ConfigError(
            f"a {cls.__name__} needs {', '.join(missing)}. Received: {', '.join(map(str, values)) or 'nothing'}."
        )
    return cls(**values)
