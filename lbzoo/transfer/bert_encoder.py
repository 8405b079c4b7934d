"""BERT under fine-tuning (Devlin et al. 2019, section 4): the features of a text or a pair are one vector.

Which one follows from what the checkpoint was trained for. Where a head stood on the pooler (next sentence, classes, a
number), it is the pooler's output, as in the paper. Where none did, nothing trained the first token or the pooler to
speak for the text, and it is the mean over the last layer's tokens: of a checkpoint of masked tokens alone, and of a
sentence encoder such as `bert-minilm-l6`, which was trained on that mean and comes with a pooler that was not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from lbzoo.bert_states import token_batches, tokens_of
from lbzoo.errors import ConfigError
from lbzoo.models.bert import BertEncoder
from lbzoo.models.bert_layers import FIRST, Dropout, encode, fused, text_vector
from lbzoo.states import BERT_POOLS, DTYPES, check_options, check_size
from lbzoo.text.pairs import Input
from lbzoo.text.wordpiece import WordPiece

LENGTH = 256  # tokens: of what users call a text nearly all, at an eighth of the memory that attention over 512 takes
_PEAK, _WIDTH = 3e-5, 768  # BERT-base is fine-tuned at 2e-5 to 5e-5 (the paper's appendix A.3); narrower ones at more


class BertTextEncoder:
    """`lbzoo.transfer.encoders.Encoder` of a BERT.

    Args:
        model: one of the models in `lbzoo.models.bert`, with a vocabulary. It is left as it is; what is trained is a
            copy of its encoder, without a head, without a pooler that is not read, and with as many positions as are
            read, so that whoever loads the result reads what was trained.
        dtype: "float32" or "bfloat16", what matrix products run in.
        max_length: most tokens of a row, special ones included; what is longer is cut, the longer text of a pair
            first. None for 256, or as many as the model has positions for.
        pool: "pooled", "cls", "mean" or "max", see `lbzoo.FeatureExtractor`; None chooses as said above.

    Raises:
        ConfigError: an option outside these, a model without a vocabulary.
    """

    def __init__(
        self, model: Any, dtype: str = "float32", max_length: Optional[int] = None, pool: Optional[str] = None
    ) -> None:
        check_options(dtype=dtype)
        pool = natural_pool(model) if pool is None else pool
        if pool not in BERT_POOLS:
            raise ConfigError(f"pool must be one of {', '.join(BERT_POOLS)} for a BERT. Received: pool={pool!r}.")
        if pool == "pooled" and not model.config.pooler:
            raise ConfigError("pool='pooled' needs a model with a pooler. Received: one without. Choose pool='mean'.")
        if model.vocabulary is None:
            raise ConfigError("this BERT came without a vocabulary, so it reads no texts. Received: no vocab.txt.")
        self.limit = _limit(model.config.max_position_embeddings, max_length)
        self.model = _body(model, pool == "pooled", self.limit, DTYPES[dtype])
        self.width, self.pool = self.model.config.hidden_size, pool
        self.reads = {"state": "cell", "pool": pool, "tanh": False}
        given = model.config.classifier_dropout
        self.defaults = {
            "epochs": 3,
            "batch_size": 32,
            "learning_rate": _PEAK * _WIDTH / self.width,
            "unfreeze": "all",
            "dropout": model.config.hidden_dropout_prob if given is None else given,
            "weight_decay": 0.01,
        }
        self._tokenizer = WordPiece.reading(model.text, model.vocabulary)
        ids = tf.TensorSpec([None, None], tf.int32)
        self.signature = [ids, ids, tf.TensorSpec([None], tf.int32)]
        self._read = tf.function(lambda *batch: self.forward(*batch)[0], input_signature=self.signature)

    def encode(self, inputs: Sequence[Input]) -> tuple[list[np.ndarray], int]:
        """(Tokens of each row, int32 [tokens, 2], their ids and segments; how many texts or pairs were cut)."""
        encoded = tokens_of(self._tokenizer, self.model.config, inputs, self.limit)
        tokens = np.stack([encoded.ids, encoded.segments], axis=1)
        return np.split(tokens, encoded.splits[1:-1])[: len(inputs)], int(encoded.dropped.any(axis=1).sum())

    def read(self, rows: Sequence[np.ndarray], batch_size: int) -> np.ndarray:
        """Features of encoded rows, float32 [rows, width], without dropout."""
        out = np.empty((len(rows), self.width), np.float32)
        for index in token_batches(np.array([len(row) for row in rows]), batch_size):
            out[index] = self._read(*self.batch([rows[i] for i in index]))
        return out

    def batch(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """(ids, segments int32 [rows, time], padded; lengths int32 [rows])."""
        lengths = np.array([len(row) for row in rows], np.int32)
        dense = np.zeros((len(rows), int(lengths.max()), 2), np.int32)
        dense[:, :, 0] = self.model.vocabulary.pad
        dense[np.arange(dense.shape[1]) < lengths[:, None]] = np.concatenate(rows)
        return np.ascontiguousarray(dense[:, :, 0]), np.ascontiguousarray(dense[:, :, 1]), lengths

    def forward(
        self, ids: tf.Tensor, segments: tf.Tensor, lengths: tf.Tensor, seed: Optional[tf.Tensor] = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """(features, float32 [rows, width]; 0, there is no language-model loss); with a seed dropout as configured."""
        config = self.model.config
        w = fused(self.model.named_weights(), config, tf.as_dtype(self.model.compute_dtype))
        rows, time = tf.unstack(tf.shape(ids))
        mask = tf.sequence_mask(lengths, time)
        drop = Dropout(seed is not None, seed, rows)
        x = encode(w, config, ids, segments, mask, drop, first_only=self.pool in FIRST)
        return text_vector(w, config, self.pool, x, mask, lengths), tf.zeros([])

    def groups(self) -> list[list[tf.Variable]]:
        """The pooler, where it is read, with the top layer; each layer below; the embeddings."""
        weights = self.model.named_weights()
        tops = [*(f"layer_{i}/" for i in reversed(range(self.model.config.num_hidden_layers))), "embeddings/"]
        groups = [[v for name, v in weights.items() if name.startswith(top)] for top in tops]
        groups[0] += [v for name, v in weights.items() if name.startswith("pooler/")]
        return groups

    def language_model(self) -> list[tf.Variable]:
        """ConfigError: a BERT has no next-byte loss."""
        raise ConfigError(
            "language_model_weight needs a model that predicts the next byte, an mLSTM. Received: a BERT. "
            "Set language_model_weight=0."
        )


def natural_pool(model: Any) -> str:
    """What a text's features are where nobody says: as it was fine-tuned before, else as this file begins."""
    told = model.card.get("pool")
    if told in BERT_POOLS and (told != "pooled" or model.config.pooler):
        return told
    return "pooled" if model.config.head in ("pretraining", "classifier", "regressor") else "mean"


def _limit(positions: int, max_length: Optional[int]) -> int:
    if max_length is None:
        return min(positions, LENGTH)
    check_size("max_length", max_length)
    if not 3 <= max_length <= positions:
        raise ConfigError(
            f"max_length must be from 3 to the {positions} positions of this model. Received: max_length={max_length}."
        )
    return int(max_length)


def _body(model: Any, pooler: bool, positions: int, dtype: str) -> BertEncoder:
    """The encoder of a model, a copy."""
    config = dataclasses.replace(model.config.encoder(), pooler=pooler, max_position_embeddings=positions)
    body = BertEncoder(config, model.text, model.card, model.vocabulary, None, dtype)
    given = model.named_weights()
    for name, variable in body.named_weights().items():
        variable.assign(given[name][:positions] if name == "embeddings/position" else given[name])
    return body
