"""What models are given: texts, or pairs of texts (a question and an answer, two sentences to compare), told apart by
their form.

A pair is a tuple or a list of two texts, a row of an array of two columns, or one of a DataFrame with two columns. All
of a collection are pairs, or none is. A BERT reads a pair as [CLS] first [SEP] second [SEP], each with segments of its
own. A model of bytes reads one text after the other, each as the text policy leaves it ("\\n first \\n second "): so
texts follow each other in the data that it was trained on.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from lbzoo.errors import TextError
from lbzoo.text.clean import Text, as_texts, encode

if TYPE_CHECKING:
    from lbzoo.text.encoding import Encoded
    from lbzoo.text.wordpiece import WordPiece


@dataclasses.dataclass(frozen=True)
class TextPair:
    """Two texts that are read together; as long as both."""

    first: Text
    second: Text

    def __len__(self) -> int:
        return len(self.first) + len(self.second)


Input = Union[Text, TextPair]


def as_inputs(texts: Iterable[Any], pairs: bool | None = None) -> Iterator[Input]:
    """Check a collection of texts, or of pairs, and iterate over it.

    What has a length is checked whole, before any work is done; an iterator as it is read.

    Args:
        texts: as `lbzoo.text.clean.as_texts` takes them, or pairs: (first, second) tuples or lists, `TextPair`s, an
            array or a DataFrame of two columns.
        pairs: True where only pairs will do, False where only single texts will, None for either.

    Returns:
        An iterator over str and bytes, or over `TextPair`s.

    Raises:
        TextError: see `as_texts`; also a pair that isn't two texts, single texts among pairs, or the other kind than
            was asked for.
    """
    shape = getattr(texts, "shape", None)
    if isinstance(shape, tuple) and len(shape) == 2 and shape[1] == 2:
        columns = texts.iloc if hasattr(texts, "iloc") else texts
        return iter(list(_checked_pairs(zip(columns[:, 0], columns[:, 1]), pairs)))
    if isinstance(texts, (str, bytes, Mapping)) or not hasattr(texts, "__iter__") or getattr(texts, "ndim", 1) != 1:
        return as_texts(texts)  # which says what is wrong
    if hasattr(texts, "__len__"):
        first = next(iter(texts), None)
        if _is_pair(first):
            return iter(list(_checked_pairs(texts, pairs)))
    else:
        texts = iter(texts)
        ahead = list(itertools.islice(texts, 1))
        first, texts = (ahead or [None])[0], itertools.chain(ahead, texts)
        if _is_pair(first):
            return _checked_pairs(texts, pairs)
    if pairs and first is not None:
        raise TextError(
            f"pairs of texts are needed, each a tuple of two. Received: single texts, the first {_brief(first)}."
        )
    return as_texts(texts)


def encode_input(given: Input, policy: str) -> bytes:
    """The bytes that a model of bytes reads, see `lbzoo.text.clean.encode`; of a pair one text after the other."""
    if isinstance(given, TextPair):
        return encode(given.first, policy) + encode(given.second, policy)
    return encode(given, policy)


def word_pieces(tokenizer: WordPiece, inputs: Sequence[Input], max_length: int) -> Encoded:
    """Texts, or pairs, all of one kind, as a BERT reads them, cut longest first to `max_length` tokens.

    Raises:
        MissingPartError: tensorflow-text is not installed.
    """
    if not inputs or not isinstance(inputs[0], TextPair):
        return tokenizer.encode(inputs, max_length=max_length)
    firsts, seconds = ([getattr(each, name) for each in inputs] for name in ("first", "second"))
    return tokenizer.encode(firsts, seconds, max_length=max_length)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list, TextPair)) or getattr(value, "ndim", 0) == 1


def _checked_pairs(rows: Iterable[Any], pairs: bool | None) -> Iterator[TextPair]:
    if pairs is False:
        raise TextError("single texts are needed. Received: pairs of texts.")
    return _pairs(rows)


def _pairs(rows: Iterable[Any]) -> Iterator[TextPair]:
    for position, row in enumerate(rows):
        if isinstance(row, TextPair):
            yield row
            continue
        if not _is_pair(row) or len(row) != 2 or not all(isinstance(text, (str, bytes)) for text in row):
            raise TextError(
                f"pair {position} must be two texts, str or bytes. Received: {_brief(row)}. Drop rows with a missing "
                'text, or give "" for it.'
            )
        yield TextPair(*row)


def _brief(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
