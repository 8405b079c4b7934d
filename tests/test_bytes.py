"""Byte strings to rectangles of ids."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.text.bytes import pack

ROWS = st.lists(st.binary(max_size=20), max_size=8)


@given(ROWS, st.integers(1, 25))
def test_cuts_put_together_are_the_strings(rows, step):
    packed = pack(rows)
    width = max(map(len, rows), default=0)
    found = [b""] * len(rows)
    for start in range(0, width, step):
        stop = min(start + step, width)
        ids, mask = packed.cut(len(rows), start, stop)
        assert ids.shape == mask.shape == (len(rows), stop - start)
        assert ids.dtype == np.int32 and mask.dtype == bool
        assert (mask == (np.arange(start, stop) < packed.lengths[:, None])).all() and not ids[~mask].any()
        found = [text + bytes(row[real].astype(np.uint8)) for text, row, real in zip(found, ids, mask)]
    assert found == rows


def test_all_bytes_are_their_own_ids():
    ids, mask = pack([bytes(range(256))]).cut(1, 0, 256)
    assert ids[0].tolist() == list(range(256)) and mask.all()


def test_nothing():
    for rows in ([], [b""], [b"", b""]):
        ids, mask = pack(rows).cut(len(rows), 0, 0)
        assert ids.shape == mask.shape == (len(rows), 0)
    ids, mask = pack([b""]).cut(1, 0, 3)
    assert ids.tolist() == [[0, 0, 0]] and not mask.any()
