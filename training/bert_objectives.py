"""What BERT's pre-training minimises: the masked tokens, and whether the second text follows the first."""

from __future__ import annotations

from typing import List, Mapping

import tensorflow as tf

from lbzoo.models.bert import BertForPreTraining

NAMES = ("masked_lm", "next_sentence", "masked_lm_accuracy", "next_sentence_accuracy")


def sums(
    model: BertForPreTraining, batch: Mapping[str, tf.Tensor], weights: tf.Tensor, training: bool, dropout: bool = True
) -> List[tf.Tensor]:
    """Of `NAMES`, float32 scalars: sums over predicted tokens with their weights, sums over rows.

    Args:
        batch: `fields` of a `training.bert_data.BertBatch`, and "seed" [rows, 2], of dropout, where it trains.
        weights: float32 [rows, predictions].
        dropout: False trains without it.
    """
    logits = model(
        batch["ids"],
        segments=batch["segments"],
        mask=batch["mask"],
        positions=batch["positions"],
        starts=batch.get("starts"),
        training=training,
        seed=batch["seed"] if training else None,
        dropout=dropout,
    )
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    return [
        tf.reduce_sum(weights * cross_entropy(batch["labels"], logits.masked_lm)),
        tf.reduce_sum(cross_entropy(batch["following"], logits.next_sentence)),
        tf.reduce_sum(weights * _right(logits.masked_lm, batch["labels"])),
        tf.reduce_sum(_right(logits.next_sentence, batch["following"])),
    ]


def _right(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.equal(tf.argmax(logits, axis=-1, output_type=labels.dtype), labels), tf.float32)


def shares(weights: tf.Tensor) -> tf.Tensor:
    """Weights [rows, predictions] of a replica, scaled: the mean over rows of a sum with them is, over all replicas and
    however rows are cut into micro-batches, the mean over all predicted tokens of the global batch."""
    context = tf.distribute.get_replica_context()
    counted = tf.stack([tf.reduce_sum(weights), tf.cast(tf.shape(weights)[0], tf.float32)])
    if context.num_replicas_in_sync > 1:
        counted = context.all_reduce("sum", counted)
    return weights * counted[1] / tf.maximum(counted[0], 1.0)
