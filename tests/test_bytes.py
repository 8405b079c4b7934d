"""Byte strings to rectangles of ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError
from lbzoo.text.bytes import pack, pad

ROWS = st.lists(st.binary(max_size=20), max_size=8)


@given(ROWS, st.sampled_from(["right", "left"]))
def test_padding_keeps_every_byte_on_its_side(rows, side):
    ids, mask = pad(rows, side)
    width = max(map(len, rows), default=0)
    assert ids.shape == mask.shape == (len(rows), width)
    assert ids.dtype == np.int32 and mask.dtype == bool
    for row, row_ids, row_mask in zip(rows, ids, mask):
        assert bytes(row_ids[row_mask].astype(np.uint8)) == row
        assert not row_ids[~row_mask].any()
        expected = np.arange(width) < len(row)
        assert (row_mask == (expected if side == "right" else expected[::-1])).all()


@given(ROWS, st.integers(1, 25))
def test_cuts_put_together_are_the_whole(rows, step):
    packed, (ids, mask) = pack(rows), pad(rows)
    width = ids.shape[1]
    for start in range(0, width, step):
        stop = min(start + step, width)
        cut_ids, cut_mask = packed.cut(len(rows), start, stop)
        assert (cut_ids == ids[:, start:stop]).all() and (cut_mask == mask[:, start:stop]).all()
        assert cut_ids.dtype == np.int32


def test_all_bytes_are_their_own_ids():
    ids, mask = pad([bytes(range(256))])
    assert ids[0].tolist() == list(range(256)) and mask.all()


def test_nothing():
    for rows in ([], [b""], [b"", b""]):
        ids, mask = pad(rows)
        assert ids.shape == mask.shape == (len(rows), 0)
    ids, mask = pack([b""]).cut(1, 0, 3)
    assert ids.tolist() == [[0, 0, 0]] and not mask.any()


def test_unknown_side():
    with pytest.raises(ConfigError, match="'right' or 'left'. Received: 'both'"):
        pad([b"x"], "both")
