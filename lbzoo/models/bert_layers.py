"""The algebra of BERT (Devlin et al. 2019) as functions of tensors: no variables, no files, no text.

x = LN(token + position + segment)
q, k, v = split((x Wqkv + bqkv), 3);  a = softmax((q / sqrt(d)) k' + mask) v
x = LN(x + (a Wo + bo));  x = LN(x + (act(x Wi + bi) Wf + bf))

Weights come as a mapping by the names of `BertConfig.shapes`, read by `fused` into what the products take. Tokens run
as one matrix [batch * time, units]; products are in the dtype of the kernels, layer norm and softmax in float32.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Tuple, Union

import tensorflow as tf

from lbzoo.models.config import BertConfig
from lbzoo.models.elementwise import one_kernel

Weights = Mapping[str, tf.Tensor]
Shape = Tuple[Union[int, tf.Tensor], Union[int, tf.Tensor]]
FIRST = ("cls", "pooled")  # what is read of the first token alone
_NEGATIVE = -1e9  # added in float32: no weight is left on a masked token, and a row without any other stays finite

_ACTIVATIONS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "tanh": tf.tanh,
}
_KERNELS = {name: one_kernel(function) for name, function in _ACTIVATIONS.items()}


def fused(weights: Mapping[str, Any], config: BertConfig, dtype: tf.DType = tf.float32) -> dict[str, tf.Tensor]:
    """Weights by name, as the products take them: kernels and biases in `dtype`, query, key and value side by side.

    Inference does this once, training in each step (the gradient goes through it).
    """
    ready = {}
    for name in config.shapes():
        prefix, _, part = name.rpartition("/")
        if prefix.endswith(("attention/key", "attention/value")):
            continue
        value = tf.convert_to_tensor(weights[name])
        if prefix.endswith("attention/query"):
            place = prefix[: -len("query")]
            key, v = (tf.convert_to_tensor(weights[f"{place}{other}/{part}"]) for other in ("key", "value"))
            name, value = f"{place}qkv/{part}", tf.concat([value, key, v], axis=-1)
        ready[name] = tf.cast(value, dtype) if f"{prefix}/kernel" in weights else value
    return ready


class Dropout:
    """Dropout of one call of a model: off unless it trains, and decided here for every place that drops.

    What is dropped is a function of the seed and of the row alone, so that N replicas with B / N rows each drop what
    one with B rows drops, and a resumed run what the killed one would have.

    Args:
        training: False drops nothing, and lets TensorFlow join operations that have no gradient to keep values for.
        seed: integers, [2] for a whole batch, whose rows are then told apart by their number, or [batch, 2], one pair a
            row, such as (seed of the run, number of the row in all that is read). None draws one from TensorFlow's
            generator.
        batch: number of rows.
        drops: False drops nothing in training either.
    """

    def __init__(
        self,
        training: bool,
        seed: Optional[tf.Tensor] = None,
        batch: Union[int, tf.Tensor, None] = None,
        drops: bool = True,
    ) -> None:
        self.training, self.places = training, 0
        self.rows: Optional[tf.Tensor] = None  # uint32 [batch], what tells the rows' random numbers apart
        if not (training and drops):
            return
        if seed is None:
            seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
        seed = tf.cast(tf.convert_to_tensor(seed), tf.uint32)
        if seed.shape.rank == 1:
            run, numbers = _mixed(seed[0] + _mixed(seed[1])), _counted(batch)
        else:
            run, numbers = _mixed(seed[:, 0]), seed[:, 1]
        self.rows = _mixed(run + _mixed(numbers))

    def __call__(self, x: tf.Tensor, rate: float) -> tf.Tensor:
        """x [batch * ..., ...], rows first, with the share `rate` set to zero and the rest scaled up."""
        if self.rows is None or rate == 0:
            return x
        self.places += 1
        place = tf.constant(self.places * 0x9E3779B1 % 2**32, tf.uint32)
        by_row = tf.reshape(x, [tf.size(self.rows), -1])  # so that the kernel need not divide to find a value's row
        return tf.reshape(_dropped(by_row, self.rows, place, rate), tf.shape(x))


@one_kernel
def _dropped(x: tf.Tensor, rows: tf.Tensor, place: tf.Tensor, rate: float) -> tf.Tensor:
    """x [batch, numbers] with the share `rate` dropped, as `rows` [batch] and `place`, uint32, say."""
    numbers = _mixed(_counted(tf.shape(x)[1]) + place)
    keep = _mixed(tf.bitwise.bitwise_xor(rows[:, None], numbers)) >= tf.constant(int(rate * 2**32), tf.uint32)
    return tf.where(keep, x * tf.cast(1 / (1 - rate), x.dtype), tf.zeros([], x.dtype))


def _counted(number: Union[int, tf.Tensor]) -> tf.Tensor:
    return tf.cast(tf.range(number), tf.uint32)


def _mixed(x: tf.Tensor) -> tf.Tensor:
    """uint32 -> uint32, one to one; each bit of the result depends on all of `x`."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint32)))
        x = x * tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(16, tf.uint32)))


def encode(
    w: Weights,
    config: BertConfig,
    ids: tf.Tensor,
    segments: Optional[tf.Tensor] = None,
    mask: Optional[tf.Tensor] = None,
    drop: Optional[Dropout] = None,
    layers: Optional[int] = None,
    softmax: tf.DType = tf.float32,
    first_only: bool = False,
    starts: Optional[tf.Tensor] = None,
) -> tf.Tensor:
    """Token ids [batch, time] -> vectors after `layers` transformer layers (None: all), float32 [batch * time, units].

    Args:
        segments: integers [batch, time]; None for segment 0 all through.
        mask: [batch, time], not 0 where there is a token; None for everywhere. What stands elsewhere in `ids` must be
            an id, but changes nothing of the vectors where there is a token.
        softmax: dtype that attention's softmax reads and writes. bfloat16, for inference in it, spares two passes over
            the scores, which come and go in bfloat16 in any case; a CPU's kernel (oneDNN) still adds up in float32.
        first_only: the vectors of the first tokens alone come back, [batch, units]; the last layer then makes no other.
        starts: integers [batch], the position of each row's first token; None for 0.
    """
    drop = drop or Dropout(training=False)
    shape = tuple(ids.shape[axis] or tf.shape(ids)[axis] for axis in (0, 1))
    x, bias = embed(w, config, ids, segments, drop, starts), attention_bias(mask, softmax)
    layers = config.num_hidden_layers if layers is None else layers
    for number in range(layers):
        x = transformer_layer(w, config, number, x, shape, bias, drop, first_only and number == layers - 1)
    return first_token(x, shape) if first_only and not layers else x


def first_token(x: tf.Tensor, shape: Shape) -> tf.Tensor:
    """Vectors [batch * time, units] -> those of the first tokens, [batch, units]."""
    return tf.reshape(x, [*shape, x.shape[-1]])[:, 0]


def pooled(w: Weights, x: tf.Tensor) -> tf.Tensor:
    """Vectors of the first tokens [batch, units] -> the pooled output, float32 of the same shape."""
    return _float32(tf.tanh(dense(w, "pooler", x)))


def text_vector(
    w: Weights, config: BertConfig, pool: str, x: tf.Tensor, mask: tf.Tensor, lengths: tf.Tensor
) -> tf.Tensor:
    """Vectors of the tokens [batch * time, units] -> one of each text, float32 [batch, units].

    Args:
        pool: "pooled" or "cls", where x is what `first_only` gives; "mean" or "max" over the tokens that are there.
        mask: bool [batch, time]. lengths: how many tokens each text has, one or more.
    """
    if pool in FIRST:
        return pooled(w, x) if pool == "pooled" else x
    x, real = tf.reshape(x, [*tf.unstack(tf.shape(mask)), config.hidden_size]), mask[:, :, None]
    if pool == "mean":
        return tf.reduce_sum(tf.where(real, x, 0.0), 1) / tf.cast(lengths, tf.float32)[:, None]
    return tf.reduce_max(tf.where(real, x, x.dtype.min), 1)


def embed(
    w: Weights,
    config: BertConfig,
    ids: tf.Tensor,
    segments: Optional[tf.Tensor],
    drop: Dropout,
    starts: Optional[tf.Tensor] = None,
) -> tf.Tensor:
    """ids, segments [batch, time] -> vectors [batch * time, units]; without segments, or without starts, all are 0."""
    time, segment = ids.shape[1] or tf.shape(ids)[1], w["embeddings/segment"]
    if starts is None:
        position = w["embeddings/position"][:time]
    else:
        position = tf.gather(w["embeddings/position"], starts[:, None] + tf.range(time))
    x = tf.gather(w["embeddings/token"], ids)
    x += position + segment[0] if segments is None else position + tf.gather(segment, segments)
    x = layer_norm(w, "embeddings", tf.reshape(x, [-1, config.hidden_size]), config)
    return drop(x, config.hidden_dropout_prob)


def attention_bias(mask: Optional[tf.Tensor], dtype: tf.DType = tf.float32) -> Optional[tf.Tensor]:
    """What is added to scores: mask [batch, time], not 0 where there is a token -> [batch, 1, 1, time].

    Scores are cast to its dtype, softmax runs in it; float16 cannot hold it.
    """
    if mask is None:
        return None
    return tf.cast(tf.where(tf.cast(mask, tf.bool), 0.0, _NEGATIVE), dtype)[:, None, None, :]


def transformer_layer(
    w: Weights,
    config: BertConfig,
    number: int,
    x: tf.Tensor,
    shape: Shape,
    bias: Optional[tf.Tensor],
    drop: Dropout,
    first_only: bool = False,
) -> tf.Tensor:
    """x [batch * time, units] -> the same shape, or [batch, units] where only the first tokens go on; `shape` is
    (batch, time), `bias` from `attention_bias`."""
    attention, ffn = f"layer_{number}/attention", f"layer_{number}/ffn"
    y = dense(w, f"{attention}/output", attend(w, attention, config, x, shape, bias, drop, first_only))
    x = first_token(x, shape) if first_only else x
    x = layer_norm(w, attention, x + _float32(drop(y, config.hidden_dropout_prob)), config)
    y = dense(w, f"{ffn}/output", activate(config, dense(w, f"{ffn}/inner", x), drop.training))
    return layer_norm(w, ffn, x + _float32(drop(y, config.hidden_dropout_prob)), config)


def attend(
    w: Weights,
    name: str,
    config: BertConfig,
    x: tf.Tensor,
    shape: Shape,
    bias: Optional[tf.Tensor],
    drop: Dropout,
    first_only: bool = False,
) -> tf.Tensor:
    """Self-attention of all heads before its output layer: [batch * time, units] -> the same shape, or [batch, units]
    where only the first tokens ask."""
    heads = config.num_attention_heads
    qkv = tf.reshape(dense(w, f"{name}/qkv", x), [*shape, 3, heads, config.hidden_size // heads])
    # [batch, heads, time, width] each; along the first axis they are taken apart without a copy
    query, key, value = tf.unstack(tf.transpose(qkv, [2, 0, 3, 1, 4]))
    query = query[:, :, :1] if first_only else query
    # in this order TensorFlow makes one operation of it where the mask has the dtype of the products
    scores = tf.matmul(query * (config.hidden_size // heads) ** -0.5, key, transpose_b=True)
    weights = tf.nn.softmax(_float32(scores) if bias is None else tf.cast(scores, bias.dtype) + bias)
    weights = drop(tf.cast(weights, value.dtype), config.attention_probs_dropout_prob)
    mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
    if first_only:
        return tf.reshape(mixed, [-1, config.hidden_size])
    return tf.reshape(mixed, tf.shape(x))  # so that TensorFlow knows: the product that follows may add x at once


def dense(w: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    """x [rows, in] -> x W + b [rows, out], in the dtype of W."""
    kernel = w[f"{name}/kernel"]
    return tf.nn.bias_add(tf.matmul(tf.cast(x, kernel.dtype), kernel), w[f"{name}/bias"])


def activate(config: BertConfig, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """The activation that the configuration names: up to rounding the same either way, sooner with its gradient in
    training. Without it TensorFlow makes one operation of product and activation.
    """
    return (_KERNELS if training else _ACTIVATIONS)[config.hidden_act](x)


def layer_norm(w: Weights, name: str, x: tf.Tensor, config: BertConfig) -> tf.Tensor:
    """Layer norm over the last axis, in float32: BERT's epsilon, 1e-12, is nothing in float16."""
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + config.layer_norm_eps)
    return centred * scale * w[f"{name}/layer_norm/gamma"] + w[f"{name}/layer_norm/beta"]


def masked_lm_logits(w: Weights, config: BertConfig, x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Vectors [rows, units] -> logits over the vocabulary, float32 [rows, vocab_size]; the decoder is the embedding."""
    x = layer_norm(w, "mlm", _float32(activate(config, dense(w, "mlm/transform", x), training)), config)
    decoder = tf.cast(w["embeddings/token"], w["mlm/transform/kernel"].dtype)
    return _float32(tf.matmul(tf.cast(x, decoder.dtype), decoder, transpose_b=True)) + _float32(w["mlm/bias"])


def at_positions(x: tf.Tensor, shape: Shape, positions: tf.Tensor) -> tf.Tensor:
    """Vectors [batch * time, units] at positions [batch, n] -> [batch * n, units]."""
    batch, time = shape
    return tf.gather(x, tf.reshape(tf.cast(positions, tf.int32) + time * tf.range(batch)[:, None], [-1]))


def _float32(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)
