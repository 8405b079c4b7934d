"""Gradients of a large batch as the sum over micro-batches, in one loop that holds the memory of one of them."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

import tensorflow as tf

from lbzoo.errors import ConfigError

# micro(*inputs) -> (loss, gradients, whatever else the loss function gave)
Micro = Callable[..., Tuple[tf.Tensor, List[tf.Tensor], Any]]


def accumulated(micro: Micro, inputs: Sequence[Any], pieces: int) -> Tuple[tf.Tensor, List[tf.Tensor], Any]:
    """Run `micro` on `pieces` equal runs of rows, one after another.

    Args:
        micro: gives (scalar loss, dense gradients, extra); traced once. `extra` is a nest of tensors or None.
        inputs: nests of tensors [rows, ...]; piece j gets rows j * rows / pieces and on.
        pieces: 1 calls `micro` as it is.

    Returns:
        (sum of the losses, sums of the gradients, extra). In extra, floating scalars are averaged, other scalars
        summed, and tensors with rows joined along their first axis, in the order of the rows.

    Raises:
        ConfigError: an input without rows, or whose rows cannot be divided into `pieces`.
    """
    if pieces == 1:
        return micro(*inputs)
    split = [_split(tf.convert_to_tensor(x), pieces) for x in tf.nest.flatten(tuple(inputs))]

    @tf.function
    def one(*flat):
        return micro(*tf.nest.pack_sequence_as(tuple(inputs), flat))

    specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in split]
    loss, grads, extra = one.get_concrete_function(*specs).structured_outputs
    flat_extra = [x for x in tf.nest.flatten(extra) if x is not None]
    arrays = [tf.TensorArray(x.dtype, size=pieces, element_shape=x.shape) for x in flat_extra]
    start = (tf.constant(0), tf.zeros([], loss.dtype), [tf.zeros(g.shape, g.dtype) for g in grads], arrays)

    def body(j, loss_sum, sums, arrays):
        loss, grads, extra = one(*[x[j] for x in split])
        flat = [x for x in tf.nest.flatten(extra) if x is not None]
        return (
            j + 1,
            loss_sum + loss,
            [s + g for s, g in zip(sums, grads)],
            [a.write(j, x) for a, x in zip(arrays, flat)],
        )

    _, loss_sum, sums, arrays = tf.while_loop(lambda j, *_: j < pieces, body, start, maximum_iterations=pieces)
    joined = iter([_join(array.stack()) for array in arrays])
    flat = [None if x is None else next(joined) for x in tf.nest.flatten(extra)]
    return loss_sum, list(sums), tf.nest.pack_sequence_as(extra, flat)


def _split(x: tf.Tensor, pieces: int) -> tf.Tensor:
    """[rows, ...] -> [pieces, rows / pieces, ...]."""
    if x.shape.rank is None or x.shape.rank < 1 or (x.shape[0] is not None and x.shape[0] % pieces):
        raise ConfigError(
            f"accumulation needs inputs whose rows divide into {pieces} equal micro-batches. Received: shape {x.shape}."
        )
    rows = -1 if x.shape[0] is None else x.shape[0] // pieces
    rest = x.shape[1:].as_list() if x.shape[1:].is_fully_defined() else tf.unstack(tf.shape(x)[1:], x.shape.rank - 1)
    return tf.reshape(x, [pieces, rows, *rest])


def _join(stacked: tf.Tensor) -> tf.Tensor:
    """[pieces, ...] of one result -> what the whole batch would have given."""
    if stacked.shape.rank == 1:
        return tf.reduce_mean(stacked) if stacked.dtype.is_floating else tf.reduce_sum(stacked)
    rest = stacked.shape[2:].as_list() if stacked.shape[2:].is_fully_defined() else tf.unstack(tf.shape(stacked)[2:])
    return tf.reshape(stacked, [-1, *rest])
