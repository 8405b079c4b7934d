"""Shards -> the global batch of step t, a pure function of (seed, t).

Row r of the batch owns one contiguous stripe of the stream; step t reads its next window. The stream of an epoch is
the shards (runs of whole documents) in an order drawn from (seed, epoch). Nothing is replayed to rebuild a step, and
nothing is read but the bytes of its windows: the folder (training/shards.py has its layout) is memory-mapped.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional

import numpy as np

from lbzoo.errors import ConfigError, TrainingError
from training.shards import open_shards


@dataclasses.dataclass(frozen=True)
class Batch:
    """One global batch.

    Attributes:
        ids: int32 [rows, window]; next_ids: the byte after each, same shape.
        reset: bool [rows, window]; True where the state has to start from zero.
        target: float32 [rows, window], log-odds that the text so far is positive; None without target.bin.
    """

    ids: np.ndarray
    next_ids: np.ndarray
    reset: np.ndarray
    target: Optional[np.ndarray]


class ByteStream:
    """Memory-mapped shards, read by (seed, step).

    Args:
        folder: what `training.prepare_reviews` or `training.prepare_sentiment` wrote.
        rows: global batch size.
        window: bytes a row reads in one step.
        seed: of the order of shards.
        shard_bytes: where the folder's text is not cut into shards, a shard is the documents that begin within so
            many bytes.
        reset: "shard" zeroes the state where a shard begins, "document" also where a document begins.
        split: which part of a folder that has splits.

    Raises:
        TrainingError: the folder is incomplete or damaged, lacks that split, or is too small for one step.
        ConfigError: an unknown reset.
    """

    def __init__(
        self,
        folder: Path,
        rows: int,
        window: int,
        seed: int,
        shard_bytes: int = 1 << 16,
        reset: str = "document",
        split: str = "train",
    ) -> None:
        if reset not in ("shard", "document"):
            raise ConfigError(f"the state is reset at each shard or at each document. Received: {reset!r}.")
        self.rows, self.window, self.seed, self.reset = rows, window, seed, reset
        self._shards = shards = open_shards(folder, split)
        self.index, self._text, self._target = shards.index, shards.text, shards.target
        self._documents = shards.offsets
        self._starts = _cut(shards.offsets[:-1], shard_bytes) if shards.begins is None else shards.begins
        self._lengths = np.diff(np.append(self._starts, self.index["bytes"]))
        self.steps_per_epoch = (self.index["bytes"] // rows) // window
        if self.steps_per_epoch < 1:
            raise TrainingError(f"{folder} holds {self.index['bytes']} bytes: too few for {rows} rows of {window}.")
        self.has_target = self._target is not None
        self._epoch: Optional[tuple[int, np.ndarray, np.ndarray]] = None

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """The global batch of `step` (0, 1, ...), or some of its rows: nothing is read of the others.

        Raises:
            TrainingError: a file of the folder has gone or was cut.
        """
        self._shards.check()
        epoch, within = divmod(step, self.steps_per_epoch)
        order, begins = self._order(epoch)
        stripe = self.index["bytes"] // self.rows
        begin = np.arange(self.rows)[rows, None] * stripe + within * self.window
        positions = begin + np.arange(self.window + 1)[None, :]
        positions = np.minimum(positions, self.index["bytes"] - 1)
        shard = np.searchsorted(begins, positions, side="right") - 1
        places = self._starts[order[shard]] + positions - begins[shard]
        ids = self._text[places].astype(np.int32)
        reset = positions[:, :-1] == begins[shard[:, :-1]]
        if self.reset == "document":
            nearest = np.searchsorted(self._documents, places[:, :-1])
            reset |= self._documents[nearest] == places[:, :-1]
        if within == 0:
            reset[:, 0] = True
        target = None if self._target is None else self._target[places[:, :-1]].astype(np.float32)
        return Batch(ids[:, :-1], ids[:, 1:], reset, target)

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if self._epoch is None or self._epoch[0] != epoch:
            order = np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(len(self._starts))
            begins = np.concatenate([[0], np.cumsum(self._lengths[order])[:-1]])
            self._epoch = (epoch, order, begins)
        return self._epoch[1], self._epoch[2]


def _cut(documents: np.ndarray, shard_bytes: int) -> np.ndarray:
    """Where shards begin: the first document at or after each multiple of `shard_bytes`."""
    if not len(documents):
        return documents
    first = np.unique(np.searchsorted(documents, np.arange(0, documents[-1] + 1, shard_bytes)))
    return np.asarray(documents[first[first < len(documents)]])
