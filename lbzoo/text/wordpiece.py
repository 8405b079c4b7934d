"""WordPiece (google-research/bert, tokenization.py) on tensorflow-text's fast tokenizer.

A text is normalized as Google's tokenizer does it (lbzoo/text/normalize.py; tensorflow-text's own normalizer keeps
control characters and folds sharp s and ligatures), then tensorflow-text (Song et al. 2021, "Fast WordPiece
Tokenization") cuts its words into pieces, the longest first.

The `tokenizers` library gives the same ids and offsets on all of IMDB, SST and GLUE, cased and uncased
(`python -m tests.wordpiece_peer imdb sst glue`), and on every character of Unicode but these:

| text | here, as Google | `tokenizers` 0.23 | reason |
|---|---|---|---|
| [MASK], [SEP] ... in a text | three pieces, unless `special_tokens` | the token | a user's text holds no token |
| a final capital sigma, uncased | U+03C2 | U+03C3 | Python's lower case knows the rule, Rust's does not |
| Chinese U+2B820 to U+2B91F | words of their own | letters | the library's range begins 256 characters late |
| formats, accents, punctuation that Unicode 9 or later added or moved | what they are | letters | older tables |

Where Google's tokenizer and `tokenizers` differ by design, this is as the latter: private use characters are left out,
words of more than 100 characters are unknown (Google's: 200), and of a pair that is cut to an odd room the longer text
keeps the odd piece (Google's: the first).
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import numpy as np

from lbzoo.errors import ConfigError, MissingPartError, TextError
from lbzoo.text.batching import windows
from lbzoo.text.clean import Text, as_texts, encode, find_policy
from lbzoo.text.encoding import Encoded, Pieces, assemble
from lbzoo.text.normalize import is_plain, normalize, normalize_aligned
from lbzoo.text.vocabulary import READINGS, SPECIAL, Vocabulary

LONGEST_WORD = 100
_ROWS, _BYTES = 1024, 1 << 20  # of one call of tensorflow-text
_LONGEST_PIECE = 256  # bytes; tensorflow-text builds no longer ones
_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL)))


class WordPiece:
    """Texts -> ids of a BERT vocabulary.

    Args:
        vocabulary: the pieces, a `Vocabulary` or the rows of one.
        lowercase: uncased: lower case and no accents.
        longest_word: characters; a longer word is [UNK]. Google's own tokenizer has 200.
        policy: name of the text policy (lbzoo/text/clean.py) that a str goes through first; None for none. Offsets
            count in what comes out of it.

    Raises:
        CheckpointError: the vocabulary lacks a special token.
        ConfigError: longest_word below 1, or an unknown policy.
    """

    def __init__(
        self,
        vocabulary: Union[Vocabulary, Sequence[str]],
        lowercase: bool = True,
        longest_word: int = LONGEST_WORD,
        policy: Optional[str] = None,
    ) -> None:
        if longest_word < 1:
            raise ConfigError(f"a word has at least one character. Received: longest_word={longest_word}.")
        self.vocabulary = vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary(vocabulary)
        self.lowercase, self.longest_word, self.policy = lowercase, longest_word, policy
        if policy is not None:
            find_policy(policy)
        # once a text is normalized, or where it is plain, words end at white space of ASCII and at its punctuation
        self._too_long = re.compile(rf"[^ \t\r\n!-/:-@\[-`{{-~]{{{longest_word + 1},}}")

    @classmethod
    def reading(cls, text: str, vocabulary: Union[Vocabulary, Sequence[str]]) -> WordPiece:
        """The tokenizer that "text" in a checkpoint's configuration names, a key of `READINGS`.

        Raises:
            ConfigError: an unknown name.
        """
        if text not in READINGS:
            raise ConfigError(
                f"no WordPiece reads texts in this way. Received: {text!r}. Known: {', '.join(READINGS)}."
            )
        lowercase, policy = READINGS[text]
        return cls(vocabulary, lowercase, policy=policy)

    def encode(
        self,
        texts: Iterable[Text],
        pairs: Optional[Iterable[Text]] = None,
        *,
        max_length: int = 512,
        offsets: bool = False,
        special_tokens: bool = False,
    ) -> Encoded:
        """Texts, or pairs of texts, as BERT reads them.

        Args:
            texts: str or bytes (UTF-8; what is invalid is left out).
            pairs: the second text of each pair, as many.
            max_length: tokens of a row, special ones included. What is too long is cut, piece after piece from the end
                of the longer text; `Encoded.dropped` and `.note` say what was.
            offsets: also say where each piece stands in its text.
            special_tokens: read "[MASK]" and the like in a text as the token; by default they are three pieces.

        Raises:
            TextError: not a list of texts, or another number of pairs than of texts.
            ConfigError: max_length has no room for the special tokens.
            MissingPartError: tensorflow-text is not installed.
        """
        first = self.tokenize(texts, offsets=offsets, special_tokens=special_tokens)
        if pairs is None:
            return assemble(first, None, self.vocabulary, max_length)
        second = self.tokenize(pairs, offsets=offsets, special_tokens=special_tokens)
        if len(first.splits) != len(second.splits):
            raise TextError(
                f"each text needs the second one of its pair. Received: {len(first.splits) - 1} texts and "
                f"{len(second.splits) - 1} second texts."
            )
        return assemble(first, second, self.vocabulary, max_length)

    def tokenize(self, texts: Iterable[Text], *, offsets: bool = False, special_tokens: bool = False) -> Pieces:
        """Texts as pieces, uncut, without [CLS] and [SEP]. Arguments and errors as for `encode`."""
        parts = [Pieces(np.empty(0, np.int32), np.zeros(1, np.int64), *[np.empty(0, np.int64)] * (2 * offsets))]
        for window in windows(map(self._decoded, as_texts(texts)), _ROWS, _BYTES):
            if special_tokens and any(map(_SPECIAL.search, window)):
                parts += [self._with_special_tokens(text, offsets) for text in window]
            else:
                parts.append(self._tokenize(window, offsets))
        return _joined(parts)

    def _decoded(self, text: Text) -> str:
        if isinstance(text, str) and self.policy is not None:
            text = encode(text, self.policy)
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)

    def _with_special_tokens(self, text: str, offsets: bool) -> Pieces:
        """One row: the stretches between special tokens, and these."""
        matches = list(_SPECIAL.finditer(text))
        begins = [0, *(match.end() for match in matches)]
        ends = [*(match.start() for match in matches), len(text)]
        between = self._tokenize([text[begin:end] for begin, end in zip(begins, ends)], offsets)
        places = between.splits[1:-1]
        return Pieces(
            np.insert(between.ids, places, [self.vocabulary.ids[match[0]] for match in matches]).astype(np.int32),
            np.asarray([0, len(between.ids) + len(matches)]),
            *(
                np.insert(flat + np.repeat(begins, between.lengths), places, here)
                for flat, here in ((between.begins, ends[:-1]), (between.ends, begins[1:]))
                if flat is not None
            ),
        )

    def _tokenize(self, texts: list[str], offsets: bool) -> Pieces:
        odd = {}  # row -> origins of its characters
        ready = list(texts)
        for row, text in enumerate(texts):
            if is_plain(text) and not self._too_long.search(text):
                ready[row] = text.lower() if self.lowercase else text
                continue
            if offsets:
                normal, *odd[row] = normalize_aligned(text, self.lowercase)
            else:
                normal = normalize(text, self.lowercase)
            ready[row] = self._too_long.sub(self._unknown_word, normal)
        encoded = [text.encode("utf-8") for text in ready]
        rows, begins, ends = self._engine.tokenize_with_offsets(encoded)
        splits = rows.row_splits.numpy()
        if not offsets:
            return Pieces(rows.flat_values.numpy(), splits)
        begins, ends = begins.flat_values.numpy(), ends.flat_values.numpy()
        for row, (origin_begins, origin_ends) in odd.items():
            here = slice(splits[row], splits[row + 1])
            # bytes -> characters: every byte but UTF-8's continuations begins one
            characters = np.cumsum((np.frombuffer(encoded[row], np.uint8) & 0xC0) != 0x80) - 1
            begins[here] = origin_begins[characters[begins[here]]]
            ends[here] = origin_ends[characters[ends[here] - 1]]
        return Pieces(rows.flat_values.numpy(), splits, begins, ends)

    def _unknown_word(self, match: re.Match) -> str:
        return self._never * len(match[0])  # as long as before, so that offsets stay

    @functools.cached_property
    def _never(self) -> str:
        """A letter that no piece holds."""
        held = set("".join(self.vocabulary.pieces))
        return next(character for character in map(chr, range(0xF0000, 0xFFFFD)) if character not in held)

    @functools.cached_property
    def _engine(self) -> Any:
        text, tf = import_tensorflow_text()
        return text.FastWordpieceTokenizer(
            vocab=self._rows_for_engine(),
            suffix_indicator="##",
            max_bytes_per_word=4 * self.longest_word,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
        )

    def _rows_for_engine(self) -> list[str]:
        """The rows, those that never match under names of their own.

        tensorflow-text refuses a vocabulary with equal or blank rows, and one with a space in a row makes it miss
        other words.
        """
        last, rows = self.vocabulary.ids, []
        for row, piece in enumerate(self.vocabulary.pieces):
            matches = (
                last[piece] == row
                and piece
                and normalize(piece, lowercase=False).strip(" ") == piece
                and " " not in piece
                and len(piece.encode("utf-8")) <= _LONGEST_PIECE
            )
            rows.append(piece if matches else f"[no piece: {row}]")
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_engine"}  # rebuilt in a moment


def import_tensorflow_text() -> tuple[Any, Any]:
    """(tensorflow_text, tensorflow); raises MissingPartError where they are not installed."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="pkg_resources is deprecated")  # tensorflow-hub's import of it
            import tensorflow as tf
            import tensorflow_text as text
    except ImportError as error:
        raise MissingPartError(
            f"word pieces need tensorflow-text 2.15, which has no wheel for Windows and Arm. Received: {error}. "
            "Elsewhere: pip install 'tensorflow-text>=2.15,<2.16' 'setuptools<81'"
        ) from error
    return text, tf


def _joined(parts: Sequence[Pieces]) -> Pieces:
    """Rows of all parts, one after another."""
    splits = np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)]))
    names = ["ids"] if parts[0].begins is None else ["ids", "begins", "ends"]
    flat = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Pieces(splits=splits, **flat)
