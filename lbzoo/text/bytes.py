"""Byte strings to arrays of token ids: a byte is its own id."""

from __future__ import annotations

import dataclasses
from typing import Sequence, Tuple

import numpy as np

from lbzoo.errors import ConfigError


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


def pad(texts: Sequence[bytes], side: str = "right") -> Tuple[np.ndarray, np.ndarray]:
    """Byte strings as one rectangle.

    Args:
        texts: the strings.
        side: where the padding goes, "right" or "left".

    Returns:
        (ids int32 [rows, longest], mask bool of the same shape, False on padding, where the id is 0).

    Raises:
        ConfigError: another side.
    """
    if side not in ("right", "left"):
        raise ConfigError(f"side must be 'right' or 'left'. Received: {side!r}.")
    packed = pack(texts)
    width = int(packed.lengths.max(initial=0))
    ids, mask = packed.cut(len(texts), 0, width)
    if side == "right":
        return ids, mask
    shifted = np.zeros_like(ids)
    from_left = mask[:, ::-1]
    shifted[from_left] = ids[mask]  # both masks visit the bytes of a row in order
    return shifted, from_left
