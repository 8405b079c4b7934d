"""Shards -> the global batch of step t, a pure function of (seed, t).

Row r of the batch owns one contiguous stripe of the stream; step t reads its next window. The stream of an epoch is
the shards (runs of whole documents) in an order drawn from (seed, epoch). Nothing is replayed to rebuild a step.

    text.bin    every document's bytes, one after another         target.bin   a float16 for each of those bytes
    offsets.npy where documents begin, and the end
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Optional

import numpy as np

from lbzoo.errors import TrainingError


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
        folder: what `training.prepare_reviews` wrote.
        rows: global batch size.
        window: bytes a row reads in one step.
        seed: of the order of shards.
        shard_bytes: a shard is the documents that begin within so many bytes.
        reset: "shard" zeroes the state where a shard begins, "document" also where a document begins.

    Raises:
        TrainingError: the folder is incomplete, or too small for one step.
    """

    def __init__(
        self,
        folder: Path,
        rows: int,
        window: int,
        seed: int,
        shard_bytes: int = 1 << 16,
        reset: str = "document",
    ) -> None:
        self.rows, self.window, self.seed, self.reset = rows, window, seed, reset
        try:
            self.index = json.loads((folder / "index.json").read_text())
            self._text = np.memmap(folder / "text.bin", np.uint8, "r")
            self._documents = np.load(folder / "offsets.npy")
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{folder} is no folder of shards: {error}. Make one: python -m training.prepare_reviews."
            ) from error
        if not len(self._text) == self._documents[-1] == self.index["bytes"]:
            raise TrainingError(
                f"{folder} is damaged: index.json says {self.index['bytes']} bytes. "
                f"Received: {len(self._text)} in text.bin. Prepare it again."
            )
        target = folder / "target.bin"
        has_target = target.exists() and target.stat().st_size > 0
        self._target = np.memmap(target, np.float16, "r") if has_target else None
        starts = self._documents[:-1]
        first = np.unique(np.searchsorted(starts, np.arange(0, self.index["bytes"], shard_bytes)))
        self._starts = starts[first[first < len(starts)]]
        self._lengths = np.diff(np.append(self._starts, self.index["bytes"]))
        self.steps_per_epoch = (self.index["bytes"] // rows) // window
        if self.steps_per_epoch < 1:
            raise TrainingError(f"{folder} holds {self.index['bytes']} bytes: too few for {rows} rows of {window}.")
        self._epoch: Optional[tuple[int, np.ndarray, np.ndarray]] = None

    def batch(self, step: int) -> Batch:
        """The global batch of `step` (0, 1, ...)."""
        epoch, within = divmod(step, self.steps_per_epoch)
        order, begins = self._order(epoch)
        stripe = self.index["bytes"] // self.rows
        positions = np.arange(self.rows)[:, None] * stripe + within * self.window + np.arange(self.window + 1)[None, :]
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
