"""Token ids -> the global batch of step t, a pure function of (seed, t).

In each pass over the text the pairs (training/pairs.py) and their order are drawn from (seed, pass), the masked tokens
(training/masking.py) from (seed, t, row). Nothing is replayed to rebuild a step, and of the folder (layout:
training/token_shards.py), which is memory-mapped, only the tokens of its rows are read.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional

import numpy as np

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.text.encoding import spans
from training.bert_recipes import BertDataConfig
from training.masking import Masking
from training.pairs import Pairs, draw
from training.token_shards import open_token_shards

DEFAULT = BertDataConfig()


@dataclasses.dataclass(frozen=True)
class BertBatch:
    """Rows of one global batch, of fixed shapes.

    Attributes:
        ids, segments: int32 [rows, length]; mask: bool [rows, length], False where a row is over.
        positions, labels: int32 [rows, predictions], which tokens are predicted and what they were.
        weights: float32 [rows, predictions], 0 where a row has fewer to predict.
        following: int32 [rows], 0 where the second text follows the first, 1 where it is a random one.
        starts: int32 [rows], the position of each row's first token; None for 0.
    """

    ids: np.ndarray
    segments: np.ndarray
    mask: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    following: np.ndarray
    starts: Optional[np.ndarray] = None

    def fields(self) -> dict[str, np.ndarray]:
        """The arrays by name, without those that are None."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


class BertStream:
    """Memory-mapped token ids, read by (seed, step).

    Args:
        folder: what `training.prepare_bert` wrote.
        rows: global batch size.
        length: tokens of a row.
        predictions: most tokens of a row that are predicted.
        seed: of pairs, order and masks.
        config: shares, pairs or single texts, whole words, static duplicates: with n of them the batches of pass n are
            those of pass 0 again, masks included.
        split: which part of the folder.

    Attributes:
        shards: the folder.
        steps_per_epoch: steps of one pass, the same for all: a pass that has a few pairs more or fewer than the first
            one leaves some out or reads some twice.

    Raises:
        TrainingError: the folder is incomplete or damaged, lacks that split, or is too small for one step.
        ConfigError: sizes or shares out of range.
    """

    def __init__(
        self,
        folder: Path,
        rows: int,
        length: int,
        predictions: int,
        seed: int,
        config: BertDataConfig = DEFAULT,
        split: str = "train",
    ) -> None:
        _check(rows, length, predictions, config)
        self.rows, self.length, self.seed, self.config = rows, length, seed, config
        self.shards = open_token_shards(folder, split)
        self._vocabulary = self.shards.vocabulary
        self._masking = Masking(self._vocabulary, predictions, config.mask_share, config.whole_words)
        self._pass, self._pairs = 0, self._draw(0)
        self.steps_per_epoch = len(self._pairs) // rows
        if self.steps_per_epoch < 1:
            raise TrainingError(f"{folder} makes {len(self._pairs)} rows of {length} tokens: too few for {rows}.")

    def batch(self, step: int, rows: slice = slice(None)) -> BertBatch:
        """The global batch of `step` (0, 1, ...), or some of its rows: nothing is read of the others."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self.config.duplicates:
            epoch %= self.config.duplicates
        numbers = np.arange(self.rows)[rows]
        every = self._pairs_of(epoch)
        pairs = every.take((within * self.rows + numbers) % len(every))
        ids, segments, lengths = self._assemble(pairs)
        number = epoch * self.steps_per_epoch + within
        masked = self._masking(ids, lengths, self.seed, number, numbers)
        return BertBatch(
            segments=segments,
            mask=np.arange(self.length) < lengths[:, None],
            following=pairs.following,
            starts=self._starts(number)[rows] if self.config.positions else None,
            **{field.name: getattr(masked, field.name) for field in dataclasses.fields(masked)},
        )

    def _starts(self, number: int) -> np.ndarray:
        """Of all rows of a step, int32 [rows]: every second one begins at 0, the others anywhere."""
        rng = np.random.Generator(np.random.PCG64([self.seed, number, self.rows]))
        starts = rng.integers(0, max(self.config.positions - self.length, 0), self.rows, np.int32, endpoint=True)
        return starts * np.int32(np.arange(self.rows) % 2)

    def _pairs_of(self, epoch: int) -> Pairs:
        if self._pass != epoch:
            self._pass, self._pairs = epoch, self._draw(epoch)
        return self._pairs

    def _draw(self, epoch: int) -> Pairs:
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        shards, config = self.shards, self.config
        room = self.length - (3 if config.next_sentence else 2)
        if len(shards.documents) < 2:
            raise TrainingError(f"{shards.folder} holds no text. Received: 0 documents. Prepare more.")
        pairs = draw(shards.sentences, shards.documents, room, config.short_share, config.next_sentence, rng)
        return pairs.take(rng.permutation(len(pairs)))

    def _assemble(self, pairs: Pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ids, segments, tokens of each row): [CLS] first [SEP], and second [SEP] where there are pairs."""
        vocabulary, tokens = self._vocabulary, self.shards.tokens
        ids = np.full((len(pairs), self.length), vocabulary.pad, np.int32)
        segments = np.zeros_like(ids)
        starts = np.arange(len(pairs)) * self.length
        flat, marks = ids.reshape(-1), segments.reshape(-1)  # views
        flat[starts] = vocabulary.cls
        flat[spans(starts + 1, pairs.lengths)] = tokens[spans(pairs.begins, pairs.lengths)]
        ends = starts + 1 + pairs.lengths
        flat[ends] = vocabulary.sep
        if self.config.next_sentence:
            flat[spans(ends + 1, pairs.second_lengths)] = tokens[spans(pairs.second_begins, pairs.second_lengths)]
            marks[spans(ends + 1, pairs.second_lengths + 1)] = 1
            ends = ends + 1 + pairs.second_lengths
            flat[ends] = vocabulary.sep
        return ids, segments, ends - starts + 1


def _check(rows: int, length: int, predictions: int, config: BertDataConfig) -> None:
    special = 3 if config.next_sentence else 2
    if rows < 1 or predictions < 1 or length < special + 2:
        raise ConfigError(
            f"a batch has rows, predictions, and rows of {special + 2} tokens or more. Received: rows={rows}, "
            f"predictions={predictions}, length={length}."
        )
    counts = config.duplicates, config.positions
    if not (0 < config.mask_share < 1 and 0 <= config.short_share <= 1 and min(counts) >= 0):
        raise ConfigError(f"shares are from 0 to 1, duplicates and positions not negative. Received: {config}.")
