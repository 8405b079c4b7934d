"""Which tokens of a row are to be predicted, and what stands in their place (Devlin et al. 2019, section 3.1).

Every draw belongs to a row of a step and to nothing else: it is a hash of (seed, step, row), so that the rows of a
batch can be made anywhere, in any parts.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from lbzoo.text.vocabulary import Vocabulary
from training.documents import scrambled

MASKED, REPLACED = 0.8, 0.1  # of the tokens to predict; the rest stay as they are
_CHOICE, _FATE, _PIECE = range(3)  # kinds of draws


@dataclasses.dataclass(frozen=True)
class Masked:
    """Rows to read and what to predict there.

    Attributes:
        ids: int32 [rows, length].
        positions: int32 [rows, predictions], rising; 0 where there is nothing to predict.
        labels: int32 of the same shape: the token that stood there; 0 where there is nothing.
        weights: float32 of the same shape: 1 where there is something to predict, else 0.
    """

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


class Masking:
    """Chooses and masks.

    Args:
        vocabulary: of the tokens.
        predictions: most tokens of a row to predict.
        share: of the tokens of a row, special ones counted, that are to be predicted; at least one.
        whole_words: all pieces of a word or none; a word that would be too many is passed over.
    """

    def __init__(
        self, vocabulary: Vocabulary, predictions: int, share: float = 0.15, whole_words: bool = False
    ) -> None:
        self.predictions, self.share, self.whole_words = predictions, share, whole_words
        self._mask, self._special, self._size = vocabulary.mask, (vocabulary.cls, vocabulary.sep), len(vocabulary)
        self._continues = np.asarray([piece.startswith("##") for piece in vocabulary.pieces])

    def __call__(self, ids: np.ndarray, lengths: np.ndarray, seed: int, step: int, rows: np.ndarray) -> Masked:
        """Mask rows.

        Args:
            ids: int32 [rows, length], special tokens included.
            lengths: tokens of each row; what follows is padding.
            seed, step, rows: whose draws these are; `rows` are numbers within the step, int64 [rows].
        """
        words = (np.arange(ids.shape[1]) < lengths[:, None]) & ~np.isin(ids, self._special)
        wanted = np.clip(np.rint(lengths * self.share), 1, self.predictions).astype(np.int64)
        draws = noise(seed, step, rows, _CHOICE, ids.shape[1])
        choose = self._whole if self.whole_words else _single
        chosen = choose(ids, words, wanted, draws)
        order = np.argsort(~chosen, axis=1, kind="stable")[:, : self.predictions]
        weights = np.take_along_axis(chosen, order, axis=1)
        positions = np.where(weights, order, 0)
        labels = np.where(weights, np.take_along_axis(ids, positions, axis=1), 0)
        ids = ids.copy()
        row, column = np.nonzero(weights)
        ids[row, positions[row, column]] = self._instead(labels, seed, step, rows)[row, column]
        missing = ((0, 0), (0, self.predictions - weights.shape[1]))  # rows shorter than their predictions
        return Masked(
            ids,
            np.pad(positions, missing).astype(np.int32),
            np.pad(labels, missing).astype(np.int32),
            np.pad(weights, missing).astype(np.float32),
        )

    def _whole(self, ids: np.ndarray, words: np.ndarray, wanted: np.ndarray, draws: np.ndarray) -> np.ndarray:
        before = np.zeros_like(words)
        before[:, 1:] = words[:, :-1]
        begins = words & ~(self._continues[ids] & before)  # a text that was cut may begin inside a word
        number = np.maximum(np.cumsum(begins, axis=1) - 1, 0)
        sizes = np.zeros(ids.shape, np.int64)
        row, column = np.nonzero(words)
        np.add.at(sizes, (row, number[row, column]), 1)
        taken, left = np.zeros_like(words), wanted.copy()
        every = np.arange(len(ids))
        for word in np.argsort(np.where(sizes > 0, draws, 2.0), axis=1).T:
            size = sizes[every, word]
            taken[every, word] = fits = (size > 0) & (size <= left)
            left -= size * fits
            if not left.any():
                break
        return words & np.take_along_axis(taken, number, axis=1)

    def _instead(self, labels: np.ndarray, seed: int, step: int, rows: np.ndarray) -> np.ndarray:
        fate = noise(seed, step, rows, _FATE, labels.shape[1])
        piece = (noise(seed, step, rows, _PIECE, labels.shape[1]) * self._size).astype(np.int32)
        return np.where(fate < MASKED, self._mask, np.where(fate < MASKED + REPLACED, piece, labels))


def _single(ids: np.ndarray, words: np.ndarray, wanted: np.ndarray, draws: np.ndarray) -> np.ndarray:
    rank = np.argsort(np.argsort(np.where(words, draws, 2.0), axis=1), axis=1)
    return words & (rank < wanted[:, None])


def noise(seed: int, step: int, rows: np.ndarray, kind: int, width: int) -> np.ndarray:
    """Numbers in [0, 1), float64 [rows, width], each a hash of (seed, step, row, kind, column)."""
    key = np.zeros(1, np.uint64)
    for part in (seed, step, kind):
        key = scrambled(key ^ np.asarray([part], np.uint64))
    keys = scrambled(key ^ np.asarray(rows).astype(np.uint64))
    return (scrambled(keys[:, None] ^ np.arange(width, dtype=np.uint64)) >> np.uint64(11)) * 2.0**-53
