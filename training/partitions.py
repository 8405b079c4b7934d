"""Documents in any order -> documents in the order of their places, each once: a sort on disk with bounded memory.

`scatter` appends a block's documents to files by place: partition p holds the p-th part of all places, so equal
documents meet in one partition. Then `plan` says how much of a partition is kept, and `write` puts it where it belongs
in the finished files, which many processes do side by side. Of a large partition only the records (21 bytes a document)
are held in memory, not the texts.

A partition is one file for each process that wrote to it, a chain of chunks:

    two int64: documents, bytes of text | RECORD of each document | their texts, one after another
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from training.documents import RECORD, SPLITS

SLICE = 1 << 22  # bytes of text gathered before they are written
WHOLE = 48 << 20  # bytes of a partition that are read in one go; of a larger one each text is read by itself
_HEAD = np.dtype([("documents", "<i8"), ("bytes", "<i8")])


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the partitions are and how many; how many shards each split has."""

    folder: Path
    partitions: int
    shards: tuple[int, int, int]


def part_of(high: np.ndarray, parts: int) -> np.ndarray:
    """Which of `parts` equal ranges of places (their higher halves, uint64) each is in; int64. parts < 2**31."""
    return ((high >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def scatter(texts: list[bytes], records: np.ndarray, layout: Layout) -> None:
    """Append documents to their partitions, in files that no other process writes to."""
    parts = part_of(records["high"], layout.partitions)
    order = np.argsort(parts, kind="stable")
    borders = np.flatnonzero(np.diff(parts[order])) + 1
    for chosen in np.split(order, borders) if len(order) else []:
        kept = records[chosen]
        head = np.asarray([(len(kept), kept["length"].sum(dtype=np.int64))], _HEAD)
        path = layout.folder / f"{parts[chosen[0]]:06d}-{os.getpid()}"
        with open(path, "ab") as file:
            file.write(b"".join([head.tobytes(), kept.tobytes(), *(texts[i] for i in chosen.tolist())]))


class Partition:
    """The documents of one partition that are kept, in order.

    Attributes:
        records: RECORD of each.
    """

    def __init__(self, layout: Layout, number: int) -> None:
        self._paths = sorted(layout.folder.glob(f"{number:06d}-*"))
        chunks = [(file, *chunk) for file, path in enumerate(self._paths) for chunk in _chunks(path)]
        records = np.concatenate([records for _, records, _ in chunks]) if chunks else np.empty(0, RECORD)
        files = np.repeat([file for file, _, _ in chunks], [len(r) for _, r, _ in chunks]).astype(np.int32)
        begins = np.concatenate([begin + _before(r["length"]) for _, r, begin in chunks]) if chunks else np.empty(0)
        order = _once(records)
        self.records, self._files, self._begins = records[order], files[order], begins[order].astype(np.int64)
        self.duplicates = len(records) - len(order)

    def texts(self, chosen: np.ndarray) -> Iterator[bytes]:
        """The documents at these positions, one by one."""
        opened = [open(path, "rb", buffering=0) for path in self._paths]
        try:
            files, begins = self._files[chosen].tolist(), self._begins[chosen].tolist()
            places = zip(files, begins, self.records["length"][chosen].tolist())
            if sum(path.stat().st_size for path in self._paths) <= WHOLE:
                held = [file.readall() for file in opened]
                for file, begin, length in places:
                    yield held[file][begin : begin + length]
            else:
                for file, begin, length in places:
                    opened[file].seek(begin)
                    yield opened[file].read(length)
        finally:
            for file in opened:
                file.close()


def _chunks(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    """(records, where their texts begin in the file) of each chunk."""
    with open(path, "rb", buffering=0) as file:
        while head := file.read(_HEAD.itemsize):
            documents, size = np.frombuffer(head, _HEAD)[0].tolist()
            records = np.frombuffer(file.read(documents * RECORD.itemsize), RECORD)
            begin = file.tell()
            yield records, begin
            file.seek(begin + size)


def _before(lengths: np.ndarray) -> np.ndarray:
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _once(records: np.ndarray) -> np.ndarray:
    """Positions of the records to keep, by place; of equal ones that in test, else valid: what is held out stays so."""
    order = np.lexsort((records["split"], records["low"], records["high"]))
    high, low = records["high"][order], records["low"][order]
    last = np.ones(len(order), bool)
    last[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return order[last]


def plan(number: int, layout: Layout) -> tuple[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]], int]:
    """(partition, for each split (shards, documents in each, bytes in each), duplicates left out)."""
    partition = Partition(layout, number)
    found = []
    for split, shards in enumerate(layout.shards):
        records = partition.records[partition.records["split"] == split]
        numbers, inverse = np.unique(part_of(records["high"], max(shards, 1)), return_inverse=True)
        sizes = np.bincount(inverse, records["length"], len(numbers)).astype(np.int64)
        found.append((numbers, np.bincount(inverse, minlength=len(numbers)), sizes))
    return number, found, partition.duplicates


def write(task: tuple[int, list[tuple[int, int]]], layout: Layout, output: Path) -> int:
    """Write a partition's documents into `output`/SPLIT/text.bin and offsets.npy, which have their final size.

    Args:
        task: the partition, and for each split (documents, bytes) that stand before it.

    Returns:
        Bytes of text written.
    """
    number, before = task
    partition, total = Partition(layout, number), 0
    for split, (document, byte) in enumerate(before):
        chosen = np.flatnonzero(partition.records["split"] == split)
        if not len(chosen):
            continue
        lengths = partition.records["length"][chosen].astype(np.int64)
        offsets = np.load(output / SPLITS[split] / "offsets.npy", mmap_mode="r+")
        offsets[document : document + len(chosen)] = byte + _before(lengths)
        with open(output / SPLITS[split] / "text.bin", "r+b") as file:
            file.seek(byte)
            for text in _joined(partition.texts(chosen)):
                file.write(text)
        total += int(lengths.sum())
    return total


def _joined(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The texts in pieces of about SLICE bytes."""
    while True:
        held, size = [], 0
        for text in texts:
            held.append(text)
            size += len(text)
            if size >= SLICE:
                break
        if not held:
            return
        yield b"".join(held)
