"""Word pieces for the [MASK]s of a text, by a BERT with a masked-lm head."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from lbzoo.bert_states import token_batches
from lbzoo.errors import ConfigError, TextError
from lbzoo.loading import load
from lbzoo.registry import MASKED_LM_MODEL
from lbzoo.states import check_size
from lbzoo.text.clean import Text, as_texts
from lbzoo.text.vocabulary import MASK, SPECIAL, Vocabulary

_TOKENS = 2048  # of one call, padding included


@dataclasses.dataclass(frozen=True)
class Guess:
    """A word piece for one [MASK], its probability, and the text with it in place; other masks stay as they are."""

    piece: str
    probability: float
    text: str


class MaskFiller:
    """What a BERT puts in place of [MASK].

    Args:
        model: name of a checkpoint (by default bert-mini-reviews), its folder, or a model, `BertForMaskedLM` or
            `BertForPreTraining`.

    Raises:
        ConfigError: another kind of model, or one without a vocabulary.
        UnknownModelError, DownloadError, CheckpointError: as `lbzoo.load`.
    """

    def __init__(self, model: Any = MASKED_LM_MODEL) -> None:
        import tensorflow as tf

        from lbzoo.text.wordpiece import WordPiece

        if isinstance(model, (str, os.PathLike)):
            model = load(model)
        config = getattr(model, "config", None)
        if getattr(config, "head", None) not in ("masked-lm", "pretraining") or model.vocabulary is None:
            raise ConfigError(
                "filling masks needs a BERT with a masked-lm head and a vocabulary. Received: "
                f"{getattr(config, 'head', None) or type(model).__name__}."
            )
        self.model, self.tokenizer = model, WordPiece.reading(model.text, model.vocabulary)

        def probabilities(ids, segments, mask, positions):
            found = model(ids, segments=segments, mask=mask, positions=positions)
            return tf.nn.softmax(found if config.head == "masked-lm" else found.masked_lm)

        ids = tf.TensorSpec([None, None], tf.int32)
        self._probabilities = tf.function(
            probabilities, input_signature=[ids, ids, tf.TensorSpec([None, None], tf.bool), ids]
        )

    def fill(self, texts: Iterable[Text], top: int = 5) -> list[list[list[Guess]]]:
        """Guesses for each [MASK] of each text, each by itself, best first; special tokens are never among them.

        Args:
            texts: str or UTF-8 bytes, each with one [MASK] or more.
            top: how many guesses.

        Returns:
            [text][mask][guess].

        Raises:
            TextError: a text without [MASK], or with one beyond the tokens that the model reads.
            ConfigError: `top` is no positive integer.
        """
        check_size("top", top)
        plain = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in as_texts(texts)]
        limit, vocabulary = self.model.config.max_position_embeddings, self.tokenizer.vocabulary
        encoded = self.tokenizer.encode(plain, max_length=limit, special_tokens=True)
        found: list[list[list[Guess]]] = [[] for _ in plain]
        for index in token_batches(encoded.lengths, len(plain), _TOKENS):
            ids, segments, mask = encoded.dense(index)
            places = [np.flatnonzero(row == vocabulary.mask) for row in ids]
            for row, where in zip(index, places):
                _require_masks(plain[row], int(row), len(where), limit)
            positions = np.zeros((len(index), max(map(len, places))), np.int32)
            for row, where in enumerate(places):
                positions[row, : len(where)] = where
            values = self._probabilities(ids, segments, mask, positions).numpy()
            for row, (number, where) in enumerate(zip(index, places)):
                found[number] = [
                    _guesses(plain[number], place, values[row, place], vocabulary, top) for place in range(len(where))
                ]
        return found


def _guesses(text: str, place: int, values: np.ndarray, vocabulary: Vocabulary, top: int) -> list[Guess]:
    """The likeliest pieces for the mask that is number `place` in the text."""
    values = values[: len(vocabulary)].copy()
    values[[vocabulary.ids[token] for token in SPECIAL]] = -1
    best = np.argsort(-values, kind="stable")[: min(top, len(values) - len(SPECIAL))]
    return [Guess(vocabulary.pieces[i], float(values[i]), _filled(text, place, vocabulary.pieces[i])) for i in best]


def _filled(text: str, place: int, piece: str) -> str:
    parts = text.split(MASK)
    before, after = MASK.join(parts[: place + 1]), MASK.join(parts[place + 1 :])
    if piece.startswith("##"):
        before, piece = before.rstrip(" "), piece[2:]
    return f"{before}{piece}{after}"


def _require_masks(text: str, number: int, found: int, limit: int) -> None:
    written = text.count(MASK)
    if not written:
        raise TextError(f"text {number} has no {MASK} to fill. Received: {text[:60]!r}.")
    if found < written:
        raise TextError(
            f"text {number} has a {MASK} beyond the {limit} tokens that this model reads. Received: {len(text)} "
            f"characters, {written} masks, {found} of them within reach. Shorten it before the mask."
        )
