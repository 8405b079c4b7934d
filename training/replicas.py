"""What a step on several replicas needs beside the update: their rows, means of what they report, a checksum."""

from __future__ import annotations

import zlib
from typing import Any, Callable, Iterable, List

import numpy as np
import tensorflow as tf


def spread(strategy: tf.distribute.Strategy, rows: int, values: Callable[[slice], Any]) -> Any:
    """`values` of the rows of each replica of this worker, as `strategy.run` takes them.

    Args:
        rows: of the global batch; replica r of R has those from r * rows / R on.
        values: gives an array, or a nest of them, for a slice of the rows.
    """
    share = rows // strategy.num_replicas_in_sync

    def own(context):
        begin = context.replica_id_in_sync_group * share
        return tf.nest.map_structure(tf.convert_to_tensor, values(slice(begin, begin + share)))

    return strategy.experimental_distribute_values_from_function(own)


def means(strategy: tf.distribute.Strategy, scalars: Iterable[Any]) -> List[tf.Tensor]:
    """Of float scalars of each replica, over all replicas, in one message; in cross-replica context."""
    if strategy.num_replicas_in_sync == 1:
        return list(scalars)

    def mean(*own):
        return tf.distribute.get_replica_context().all_reduce("mean", list(own))

    found = strategy.run(mean, args=tuple(scalars))
    return [strategy.experimental_local_results(value)[0] for value in found]


def checksum(variables: Iterable[tf.Variable]) -> str:
    """Of every number, bit by bit."""
    total = 0
    for variable in variables:
        total = zlib.crc32(np.ascontiguousarray(variable.numpy()), total)
    return f"{total:08x}"
