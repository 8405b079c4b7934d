"""The order in which texts of unequal length are worked through: windows, batches, chunks. Pure arithmetic.

A window is read from the stream, sorted by length and cut into batches, so that batch mates are about equally long and
memory depends on the window and the batch, not on the number of texts. A batch runs in chunks of time with carried
state; rows that are over leave it.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence, Tuple

import numpy as np

_SORTED = 50  # batches whose texts are sorted by length together
_SHORT = 32  # steps; below that the overhead of a call costs more than the rows that are over


def windows(texts: Iterable[bytes], rows: int, size: int) -> Iterator[list[bytes]]:
    """Lists of at most `rows` texts, in order, closed early once they hold `size` bytes; none is empty."""
    window: list[bytes] = []
    held = 0
    for text in texts:
        window.append(text)
        held += len(text)
        if len(window) >= rows or held >= size:
            yield window
            window, held = [], 0
    if window:
        yield window


def batches(lengths: Sequence[int], batch_size: int) -> Iterator[np.ndarray]:
    """Index arrays of at most `batch_size`, longest texts first; within a batch the lengths fall.

    The longest come first so that a batch that does not fit into memory fails at the start and not at the end.
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def shuffled_batches(lengths: Sequence[int], batch_size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Index arrays of one pass for training: every text once, in random order, batch mates about equally long.

    The texts are spread evenly: batches differ by one text at most, so that none is a scrap of one or two texts whose
    gradient would count as much as that of a whole batch.
    """
    count = -(-len(lengths) // batch_size)
    shuffled, lengths = rng.permutation(len(lengths)), np.asarray(lengths)
    stretches = np.array_split(shuffled, max(count // _SORTED, 1))  # sorted by length in themselves only
    order = np.concatenate([stretch[np.argsort(lengths[stretch], kind="stable")] for stretch in stretches])
    batches = np.array_split(order, count)
    return (batches[i] for i in rng.permutation(count))


def chunks(lengths: np.ndarray, chunk_size: int) -> Iterator[Tuple[int, int, int]]:
    """Cut a batch along time.

    A chunk ends early where a quarter of its rows are over: they would only be carried along.

    Args:
        lengths: falling lengths, int [rows].
        chunk_size: most steps of one chunk.

    Yields:
        (start, stop, rows): steps start..stop of the first `rows` texts, which are those longer than `start`. Together
        they cover every byte once.
    """
    longest = int(lengths[0]) if len(lengths) else 0
    shortest_chunk = min(chunk_size, _SHORT)
    start = 0
    while start < longest:
        rows = int(np.searchsorted(-lengths, -start, side="left"))
        quarter_over = int(lengths[rows * 3 // 4])
        stop = min(max(start + shortest_chunk, quarter_over), start + chunk_size, longest)
        yield start, stop, rows
        start = stop
