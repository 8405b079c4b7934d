"""Pieces of texts, and what BERT reads of them: [CLS] first [SEP], or [CLS] first [SEP] second [SEP].

Rows are kept end to end: row r of a flat array is flat[splits[r] : splits[r + 1]].
"""

from __future__ import annotations

import dataclasses
from typing import Optional, Tuple

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Texts as pieces, without special tokens.

    Attributes:
        ids: int32 [total].
        splits: int64 [rows + 1].
        begins, ends: int64 [total], or None where nobody asked: the piece stands at text[begin:end] of the original
            string (characters; of a text given as bytes, characters of its decoded form).
    """

    ids: np.ndarray
    splits: np.ndarray
    begins: Optional[np.ndarray] = None
    ends: Optional[np.ndarray] = None

    @property
    def lengths(self) -> np.ndarray:
        """Pieces in each row, int64 [rows]."""
        return np.diff(self.splits)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Texts or pairs of texts as BERT reads them.

    Attributes:
        ids: int32 [total].
        segments: int32 [total]; 1 for the second text of a pair and the [SEP] behind it.
        splits: int64 [rows + 1].
        dropped: int64 [rows, 2]: pieces that were cut from the first and from the second text to fit.
        pad: id of [PAD].
        begins, ends: as of `Pieces`, each in its own text; -1 for special tokens. None where nobody asked.
    """

    ids: np.ndarray
    segments: np.ndarray
    splits: np.ndarray
    dropped: np.ndarray
    pad: int
    begins: Optional[np.ndarray] = None
    ends: Optional[np.ndarray] = None

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each row, special ones included, int64 [rows]."""
        return np.diff(self.splits)

    @property
    def note(self) -> str:
        """What was cut, in one line for people; "" where nothing was."""
        cut = self.dropped.sum(axis=1)
        if not cut.any():
            return ""
        return (
            f"{np.count_nonzero(cut)} of {len(cut)} texts were too long: {int(cut.sum()):,} pieces were cut off, "
            f"at most {int(cut.max()):,} of one."
        )

    def dense(
        self, rows: Optional[np.ndarray] = None, length: Optional[int] = None
    ) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chosen rows, padded.

        Args:
            rows: positions, or None for all rows.
            length: of the result; by default the longest of these rows.

        Returns:
            (ids int32 [rows, length], segments int32, mask bool of the same shape); [PAD], 0 and False where a row is
            over.

        Raises:
            ConfigError: a row is longer than `length`.
        """
        starts = self.splits[:-1] if rows is None else self.splits[:-1][rows]
        lengths = self.lengths if rows is None else self.lengths[rows]
        longest = int(lengths.max()) if len(lengths) else 0
        if length is not None and longest > length:
            raise ConfigError(f"a row of {longest} tokens does not fit. Received: length={length}.")
        mask = np.arange(longest if length is None else length) < lengths[:, None]
        places = spans(starts, lengths)
        ids, segments = np.full(mask.shape, self.pad, np.int32), np.zeros(mask.shape, np.int32)
        ids[mask], segments[mask] = self.ids[places], self.segments[places]
        return ids, segments, mask


def spans(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The positions start, start + 1, ... of each span, one after another, int64 [sum of lengths]."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def longest_first(first: np.ndarray, second: np.ndarray, room: int) -> Tuple[np.ndarray, np.ndarray]:
    """How many pieces two texts keep when piece after piece is taken from the end of the longer one until `room` holds
    them.

    Where both end up at half an odd room, the text that was longer keeps one more; of equal ones the second.

    Args:
        first, second: lengths, int64 [rows].
        room: pieces that there is room for.

    Returns:
        Two int64 [rows].
    """
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(room - shorter, (room + 1) // 2))
    shorter = np.minimum(shorter, room - longer)
    return np.where(first > second, longer, shorter), np.where(first > second, shorter, longer)


def assemble(first: Pieces, second: Optional[Pieces], vocabulary: Vocabulary, max_length: int) -> Encoded:
    """Put special tokens around texts or pairs, cut longest first to `max_length` tokens in all.

    Raises:
        ConfigError: no room for the special tokens.
    """
    special = 2 if second is None else 3
    room = max_length - special
    if room < 0:
        raise ConfigError(f"{special} special tokens need room. Received: max_length={max_length}.")
    parts = [(0, first)] if second is None else [(0, first), (1, second)]
    lengths = np.zeros((len(first.lengths), 2), np.int64)
    for segment, part in parts:
        lengths[:, segment] = part.lengths
    kept = np.stack(longest_first(lengths[:, 0], lengths[:, 1], room), axis=1)
    splits = np.concatenate([[0], np.cumsum(kept.sum(axis=1) + special)])
    total = int(splits[-1])
    ids, segments = np.full(total, vocabulary.sep, np.int32), np.zeros(total, np.int32)
    ids[splits[:-1]] = vocabulary.cls
    aligned = first.begins is not None
    begins, ends = (np.full(total, -1, np.int64) for _ in range(2)) if aligned else (None, None)
    for segment, part in parts:
        there = spans(splits[:-1] + 1 + segment * (kept[:, 0] + 1), kept[:, segment])
        here = spans(part.splits[:-1], kept[:, segment])
        ids[there], segments[there] = part.ids[here], segment
        if aligned:
            begins[there], ends[there] = part.begins[here], part.ends[here]
    if second is not None:
        segments[splits[1:] - 1] = 1
    return Encoded(ids, segments, splits, lengths - kept, vocabulary.pad, begins, ends)
