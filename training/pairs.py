"""Documents of sentences -> the pairs of texts that BERT reads in one pass (Devlin et al. 2019, appendix A.2).

A document is read from its beginning in runs of whole sentences, each just long enough for a row. A run is cut in two
between sentences at random; half of the second parts are replaced by a run from a random place of another document,
and what was to follow begins the next run. A pair that is too long loses pieces of the longer text, at random from its
front or its back. Everything is drawn for all documents at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from lbzoo.errors import TrainingError
from lbzoo.text.encoding import longest_first

SHORTEST = 2  # pieces that a short row aims at, at least


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Stretches of the tokens, int64 [pairs] each; without pairs the second ones are empty.

    Attributes:
        begins, lengths: of the first text.
        second_begins, second_lengths: of the second text.
        following: int32 [pairs], 0 where the second text follows the first, 1 where it is a random one.
    """

    begins: np.ndarray
    lengths: np.ndarray
    second_begins: np.ndarray
    second_lengths: np.ndarray
    following: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)

    def take(self, places: np.ndarray) -> Pairs:
        """Those at these positions."""
        return Pairs(*(getattr(self, field.name)[places] for field in dataclasses.fields(self)))


def draw(
    sentences: np.ndarray,
    documents: np.ndarray,
    room: int,
    short_share: float,
    next_sentence: bool,
    rng: np.random.Generator,
) -> Pairs:
    """The pairs of one pass, documents that are longer than the others at the end.

    Args:
        sentences: int64 [sentences + 1], where each begins in the tokens, and the end; none is empty.
        documents: int64 [documents + 1], which sentence each begins with, and their number; none is empty.
        room: pieces of a row, without special tokens.
        short_share: of rows that aim at fewer, SHORTEST to `room`.
        next_sentence: False makes single texts, runs that are not cut in two.

    Raises:
        TrainingError: pairs of a single document, which has no other one.
    """
    if next_sentence and len(documents) < 3:
        raise TrainingError(
            f"half of the second texts come from other documents. Received: {len(documents) - 1} document. Prepare "
            "more text, or train with data.next_sentence=false."
        )
    rounds = list(_rounds(np.asarray(sentences), np.asarray(documents), room, short_share, next_sentence, rng))
    columns = [np.concatenate(column) for column in zip(*rounds)]
    return Pairs(*_fitted(columns[:4], room, rng), columns[4].astype(np.int32))


def _rounds(
    sentences: np.ndarray,
    documents: np.ndarray,
    room: int,
    short_share: float,
    next_sentence: bool,
    rng: np.random.Generator,
) -> Iterator[tuple[np.ndarray, ...]]:
    """The next run of every document that has one left, again and again: the columns of `Pairs`, not yet fitted."""
    owners = np.arange(len(documents) - 1)
    begin = documents[:-1]
    while len(owners):
        target = np.full(len(owners), room)
        short = rng.random(len(owners)) < short_share
        target[short] = rng.integers(SHORTEST, room + 1, int(short.sum()))
        end = _reach(sentences, begin, target, documents[owners + 1])
        if not next_sentence:
            yield sentences[begin], sentences[end] - sentences[begin], end * 0, end * 0, end * 0
        else:
            cut = begin + rng.integers(1, np.maximum(end - begin, 2))
            elsewhere = (cut == end) | (rng.random(len(owners)) < 0.5)
            other, stop = _other(sentences, documents, owners, target - (sentences[cut] - sentences[begin]), rng)
            second, last = np.where(elsewhere, other, cut), np.where(elsewhere, stop, end)
            yield (
                *(sentences[begin], sentences[cut] - sentences[begin]),
                *(sentences[second], sentences[last] - sentences[second], elsewhere),
            )
            end = np.where(elsewhere, cut, end)
        left = end < documents[owners + 1]
        owners, begin = owners[left], end[left]


def _reach(sentences: np.ndarray, begin: np.ndarray, target: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The first sentence by which `target` pieces from sentence `begin` on are reached, at most `stop`."""
    return np.minimum(np.searchsorted(sentences, sentences[begin] + np.maximum(target, 1)), stop)


def _other(
    sentences: np.ndarray, documents: np.ndarray, owners: np.ndarray, target: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A run of about `target` pieces from a random sentence of a random document that is not the owner."""
    document = rng.integers(0, len(documents) - 2, len(owners))
    document += document >= owners
    begin = rng.integers(documents[document], documents[document + 1])
    return begin, _reach(sentences, begin, target, documents[document + 1])


def _fitted(columns: list[np.ndarray], room: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Stretches of the first and the second text, cut to `room` in all."""
    begins, lengths = columns[::2], columns[1::2]
    for begin, length, kept in zip(begins, lengths, longest_first(*lengths, room)):
        yield begin + rng.binomial(length - kept, 0.5)
        yield kept
