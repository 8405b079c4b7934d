"""Texts through a BERT, one vector a text out: the reader that `states` gives for this architecture.

Weights are fused and cast once. A window of texts is sorted by length and runs in batches that are small in tokens and
in padding, whatever the lengths; several run at a time.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterable, Iterator, Optional, Sequence

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.states import check_size
from lbzoo.text.batching import windows
from lbzoo.text.encoding import Encoded
from lbzoo.text.pairs import Input, as_inputs, word_pieces

TOKENS = 2048  # of one call, padding included
PADDING = 64  # of them at most; less would make so many calls more that they cost as much
CALLS = 3  # at a time: while one waits for its slowest thread, the others go on

_WINDOW_BYTES = 8 << 20  # of texts that are sorted together


class BertWeights:
    """A model's weights as inference multiplies with them, and its tokenizer; a snapshot.

    Args:
        model: one of the models in `lbzoo.models.bert`, with a vocabulary.
        dtype: "float32" or "bfloat16", what matrix products run in.

    Raises:
        ConfigError: a model without a vocabulary.
    """

    def __init__(self, model: Any, dtype: str = "float32") -> None:
        import tensorflow as tf

        from lbzoo.models.bert_layers import fused
        from lbzoo.text.wordpiece import WordPiece

        if model.vocabulary is None:
            raise ConfigError(
                "this BERT came without a vocabulary, so it reads ids and no texts. Received: no vocab.txt."
            )
        self.config, self.dtype = model.config, tf.as_dtype(dtype)
        self.w = fused(model.named_weights(), model.config, self.dtype)
        self.tokenizer = WordPiece.reading(model.text, model.vocabulary)


class BertReader:
    """Pooled vectors of a BERT over texts.

    Args:
        weights: of the model.
        pool: "mean" or "max" over the tokens of a text ([CLS] and [SEP] among them, as sentence encoders are trained),
            "cls" for the first token, "pooled" for the pooler's output.
        layer: whose vectors: 0 for the embeddings, 1 for the first layer, -1 for the last.

    Raises:
        ConfigError: a layer that the model does not have; "pooled" without a pooler or below the last layer.
    """

    def __init__(self, weights: BertWeights, pool: str = "mean", layer: int = -1) -> None:
        config = weights.config
        depth = config.num_hidden_layers
        if not -depth - 1 <= layer <= depth:
            raise ConfigError(f"layer must be from {-depth - 1} to {depth} for this model. Received: layer={layer}.")
        self.layers = layer % (depth + 1)
        if pool == "pooled" and (not config.pooler or self.layers != depth):
            raise ConfigError(
                "pool='pooled' needs a model with a pooler, and its last layer. "
                f"Received: pooler={config.pooler}, layer={layer} of {depth}."
            )
        self.weights, self.pool, self.units = weights, pool, config.hidden_size
        self.step = _compile(weights, pool, self.layers)

    def iter_read(self, texts: Iterable, batch_size: int = 128, window: Optional[int] = None) -> Iterator[np.ndarray]:
        """Read a stream, window by window, in order and in memory that does not grow.

        A text of more tokens than the model has positions for is cut at its end, and a warning says how many were.

        Args:
            texts: anything `lbzoo.text.pairs.as_inputs` takes.
            batch_size: most texts that run together.
            window: most texts that are sorted together; None for 64 batches.

        Yields:
            float32 [texts of the window, units].

        Raises:
            TextError: an element that is not a text.
            ConfigError: a batch size or a window that is not a positive integer.
            MissingPartError: tensorflow-text is not installed.
        """
        check_size("batch_size", batch_size)
        if window is not None:
            check_size("window", window)
        return self._read_windows(windows(as_inputs(texts), window or 64 * batch_size, _WINDOW_BYTES), batch_size)

    def _read_windows(self, parts: Iterable[Sequence], batch_size: int) -> Iterator[np.ndarray]:
        limit, dropped = self.weights.config.max_position_embeddings, []
        for part in parts:
            encoded = tokens_of(self.weights.tokenizer, self.weights.config, part, limit)
            dropped.append(encoded.dropped)
            yield self.read(encoded, batch_size)
        cut = np.concatenate(dropped).sum(axis=1) if dropped else np.zeros(0, np.int64)
        if cut.any():
            warnings.warn(
                f"{np.count_nonzero(cut)} of {len(cut)} texts have more than the {limit} tokens that this model reads; "
                f"{int(cut.sum()):,} word pieces at their ends were left out.",
                UserWarning,
                stacklevel=2,
            )

    def read(self, encoded: Encoded, batch_size: int = 128) -> np.ndarray:
        """Pooled vectors of tokens, float32 [rows, units]."""
        out = np.empty((len(encoded.lengths), self.units), np.float32)

        def fill(index: np.ndarray) -> None:
            ids, segments, mask = encoded.dense(index)
            out[index] = self.step(ids, segments, mask.sum(axis=1, dtype=np.int32))

        with ThreadPoolExecutor(CALLS) as calls:
            for _ in calls.map(fill, token_batches(encoded.lengths, batch_size)):
                pass
        return out


def tokens_of(tokenizer: Any, config: Any, inputs: Sequence[Input], max_length: int) -> Encoded:
    """Texts or pairs as a BERT of this configuration reads them, see `word_pieces`; ConfigError for pairs where it has
    one segment only."""
    encoded = word_pieces(tokenizer, inputs, max_length)
    if len(encoded.segments) and int(encoded.segments.max()) >= config.type_vocab_size:
        raise ConfigError(
            f"pairs need a model that tells two segments apart. Received: type_vocab_size={config.type_vocab_size}."
        )
    return encoded


def token_batches(lengths: np.ndarray, batch_size: int, tokens: int = TOKENS) -> Iterator[np.ndarray]:
    """Index arrays, longest rows first, of at most `batch_size` rows and about `tokens` tokens with their padding, of
    which there are at most `PADDING`."""
    lengths = np.asarray(lengths, np.int64)
    order, start = np.argsort(-lengths, kind="stable"), 0
    while start < len(order):
        longest = int(lengths[order[start]])
        part = order[start : start + min(max(tokens // longest, 1), batch_size)]
        padding = np.cumsum(longest - lengths[part])
        part = part[: np.searchsorted(padding, PADDING, side="right")]
        yield part
        start += len(part)


def _compile(weights: BertWeights, pool: str, layers: int) -> Any:
    """(ids, segments int32 [rows, time], lengths int32 [rows]) -> float32 [rows, units], as one tf.function."""
    import tensorflow as tf

    from lbzoo.models.bert_layers import FIRST, encode, text_vector

    config, w, dtype = weights.config, weights.w, weights.dtype

    def run(ids, segments, lengths):
        mask = tf.sequence_mask(lengths, tf.shape(ids)[1])
        x = encode(w, config, ids, segments, mask, layers=layers, softmax=dtype, first_only=pool in FIRST)
        return text_vector(w, config, pool, x, mask, lengths)

    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(run, input_signature=[ids, ids, tf.TensorSpec([None], tf.int32)])
