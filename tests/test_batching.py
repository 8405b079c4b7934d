"""Windows, batches and chunks: everything once, in order, and no more work than it takes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.text.batching import batches, chunks, shuffled_batches, windows

LENGTHS = st.lists(st.integers(0, 300), min_size=1, max_size=40)


@given(st.lists(st.binary(max_size=9)), st.integers(1, 7), st.integers(1, 40))
def test_windows_keep_order_and_bounds(texts, rows, size):
    found = list(windows(iter(texts), rows, size))
    assert list(itertools.chain.from_iterable(found)) == texts
    for window in found:
        assert 0 < len(window) <= rows
        assert sum(map(len, window[:-1])) < size


def test_windows_read_no_further_than_they_must():
    source = iter([b"x"] * 100)
    stream = windows(source, 10, 1 << 20)
    assert len(next(stream)) == 10
    assert len(list(source)) == 90


@given(st.lists(st.integers(0, 1000)), st.integers(1, 9))
def test_batches_fall_in_length_and_hold_every_text_once(lengths, batch_size):
    found = list(batches(lengths, batch_size))
    order = [int(i) for batch in found for i in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    assert all(0 < len(batch) <= batch_size for batch in found)


@given(LENGTHS, st.integers(1, 300))
def test_chunks_cover_every_byte_once(lengths, chunk_size):
    lengths = np.array(sorted(lengths, reverse=True))
    covered = np.zeros((len(lengths), lengths[0]), int)
    at = 0
    for start, stop, rows in chunks(lengths, chunk_size):
        assert start == at and start < stop <= start + chunk_size
        assert rows == (lengths > start).sum()
        covered[:rows, start:stop] += 1
        at = stop
    assert at == lengths[0]
    assert (covered[np.arange(lengths[0]) < lengths[:, None]] == 1).all()


@pytest.mark.parametrize(
    "lengths", [[100] * 128, [120] * 64 + [110] * 64, list(range(300, 44, -2)), [10_000] + [50] * 127]
)
def test_little_is_computed_for_rows_that_are_over(lengths):
    computed = sum((stop - start) * rows for start, stop, rows in chunks(np.array(lengths), 256))
    assert computed <= 1.15 * sum(lengths)


def test_calls_are_few():
    assert len(list(chunks(np.array([1 << 20]), 256))) == 4096
    assert len(list(chunks(np.array(range(300, 44, -2)), 256))) <= 10
    assert list(chunks(np.array([], int), 64)) == [] and list(chunks(np.array([0, 0]), 64)) == []


@given(LENGTHS, st.integers(1, 9), st.integers(0, 3))
def test_training_batches_hold_every_text_once_and_none_is_a_scrap(lengths, batch_size, seed):
    found = list(shuffled_batches(lengths, batch_size, np.random.default_rng(seed)))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    sizes = {len(batch) for batch in found}
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1
    again = shuffled_batches(lengths, batch_size, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(found, again))


def test_training_batches_are_of_equal_length_and_in_another_order_each_time():
    rng = np.random.default_rng(0)
    lengths = rng.permutation(2000)
    first, second = (list(shuffled_batches(lengths, 10, rng)) for _ in range(2))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
    spread = [np.ptp(lengths[batch]) for batch in first]
    assert np.mean(spread) < 100  # of 2000
    means = [lengths[batch].mean() for batch in first]
    assert np.corrcoef(means, range(len(means)))[0, 1] ** 2 < 0.05  # short ones do not come first
