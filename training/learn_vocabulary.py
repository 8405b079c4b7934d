"""Documents -> a WordPiece vocabulary of their own, by tensorflow-text's learner."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.text.normalize import normalize
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from lbzoo.text.wordpiece import import_tensorflow_text

SAMPLE = 1 << 28  # bytes of text that words are counted in
_DISTINCT = 8  # times the size: so many words, the most frequent, are learnt from; the learner is slow
_LONGEST = 32  # characters of a piece
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")  # of a normalized text


def count_words(documents: Iterable[bytes], lowercase: bool, sample: int = SAMPLE) -> Mapping[str, int]:
    """How often each word stands in the first documents, about `sample` bytes of them."""
    counts: collections.Counter[str] = collections.Counter()
    for document in documents:
        counts.update(_WORD.findall(normalize(document.decode("utf-8", "replace"), lowercase)))
        sample -= len(document)
        if sample <= 0:
            break
    return counts


def learn(counts: Mapping[str, int], size: int) -> Vocabulary:
    """A vocabulary of `size` rows, or fewer where the text has no more words.

    Special tokens, then characters alone and inside words, then pieces by their frequency. One character in forty rows
    is kept, the most frequent; a word with another one is unknown. The learner meets a size only roughly: rows that it
    leaves go to the most frequent words without one.

    Args:
        counts: how often each word occurs, see `count_words`.

    Raises:
        ConfigError: the characters alone take more rows than `size`.
        TrainingError: no words.
        MissingPartError: tensorflow-text is not installed.
    """
    words = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[: _DISTINCT * size]
    if not words:
        raise TrainingError("a vocabulary is learnt from words. Received: a text without any.")
    learnt = _learner().learn(
        words,
        vocab_size=size,
        reserved_tokens=list(SPECIAL),
        # every word that is frequent enough becomes a piece, so that the threshold lies above the size-th word's count
        lower_thresh=words[min(size, len(words)) - 1][1],
        upper_thresh=words[min(size // 16, len(words) - 1)][1],
        max_unique_chars=max(size // 40, 64),
        max_token_length=_LONGEST,
    )
    pieces = [piece for piece in learnt if piece not in SPECIAL and _can_match(piece)]
    characters = [piece for piece in pieces if len(piece.removeprefix("##")) == 1]
    if len(SPECIAL) + len(characters) > size:
        raise ConfigError(
            f"the special tokens and the characters of this text take {len(SPECIAL) + len(characters)} rows. Received: "
            f"a vocabulary of {size}."
        )
    known, alone = set(pieces), set(characters)
    more = [word for word, _ in words if word not in known and alone.issuperset(word) and len(word) <= _LONGEST]
    rest = [piece for piece in pieces if piece not in alone] + more
    return Vocabulary([*SPECIAL, *characters, *rest][:size])


def _can_match(piece: str) -> bool:
    """Whether a word can hold it: punctuation and Chinese characters stand alone."""
    return not piece.startswith("##") or len(_WORD.findall(normalize("a" + piece[2:], lowercase=False))) == 1


def _learner() -> Any:
    import_tensorflow_text()
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

    return wordpiece_tokenizer_learner_lib
