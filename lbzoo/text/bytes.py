"""Byte strings to arrays of token ids: a byte is its own id."""

from __future__ import annotations

import dataclasses
from typing import Sequence, Tuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Packed:
    """Byte strings end to end, so that any stretch of many of them is one array operation away.

    Attributes:
        flat: all bytes, uint8 [total].
        starts: where each string begins in `flat`, int64 [rows].
        lengths: its length, int64 [rows].
    """

    flat: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def cut(self, rows: int, start: int, stop: int) -> Tuple[np.ndarray, np.ndarray]:
        """Bytes start..stop of the first `rows` strings.

        Returns:
            (ids int32 [rows, stop - start], mask bool of the same shape). Where a string is over, the mask is False and
            the id 0.
        """
        time = np.arange(start, stop)
        mask = time < self.lengths[:rows, None]
        if not self.flat.size:
            return np.zeros(mask.shape, np.int32), mask
        ids = self.flat.take(self.starts[:rows, None] + time, mode="clip").astype(np.int32)
        ids *= mask
        return ids, mask


def pack(texts: Sequence[bytes]) -> Packed:
    """Join byte strings into a `Packed`."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return Packed(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(lengths) - lengths, lengths)
