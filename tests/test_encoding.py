"""What BERT reads: special tokens, segments, pairs cut longest first and reported, rows padded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError
from lbzoo.text.encoding import Pieces, assemble, longest_first, spans
from lbzoo.text.vocabulary import SPECIAL, Vocabulary

VOCABULARY = Vocabulary([*SPECIAL, *(f"piece {i}" for i in range(5, 200))])
PAD, _, CLS, SEP, _ = range(5)
rows = st.lists(st.lists(st.integers(5, 199), max_size=9), max_size=6)


def pieces(rows):
    lengths = [len(row) for row in rows]
    flat = np.asarray([i for row in rows for i in row], np.int32)
    return Pieces(flat, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat * 10, flat * 10 + 1)


def row(encoded, number):
    here = slice(encoded.splits[number], encoded.splits[number + 1])
    return encoded.ids[here].tolist(), encoded.segments[here].tolist()


def cut(first, second, room):
    """Piece after piece from the end of the longer one, by the rule that this project states."""
    first, second = list(first), list(second)
    longer_was_first = len(first) > len(second)
    while len(first) + len(second) > room:
        if len(first) > len(second) or (len(first) == len(second) and not longer_was_first):
            first.pop()
        else:
            second.pop()
    return first, second


def test_a_text_stands_between_its_special_tokens():
    encoded = assemble(pieces([[7, 8], [], [9]]), None, VOCABULARY, 512)
    assert row(encoded, 0) == ([CLS, 7, 8, SEP], [0] * 4)
    assert row(encoded, 1) == ([CLS, SEP], [0, 0])
    assert encoded.lengths.tolist() == [4, 2, 3]
    assert encoded.begins.tolist() == [-1, 70, 80, -1, -1, -1, -1, 90, -1]
    assert encoded.ends.tolist() == [-1, 71, 81, -1, -1, -1, -1, 91, -1]
    assert encoded.ids.dtype == encoded.segments.dtype == np.int32 and encoded.note == ""


@given(rows, st.integers(3, 20), st.randoms(use_true_random=False))
def test_pairs_are_cut_piece_by_piece(first, max_length, random):
    second = [random.choices(range(5, 200), k=random.randint(0, 9)) for _ in first]
    encoded = assemble(pieces(first), pieces(second), VOCABULARY, max_length)
    for number, (a, b) in enumerate(zip(first, second)):
        kept_a, kept_b = cut(a, b, max_length - 3)
        assert row(encoded, number) == (
            [CLS, *kept_a, SEP, *kept_b, SEP],
            [0] * (len(kept_a) + 2) + [1] * (len(kept_b) + 1),
        )
        assert encoded.dropped[number].tolist() == [len(a) - len(kept_a), len(b) - len(kept_b)]


def test_single_texts_lose_their_end():
    encoded = assemble(pieces([[5, 6, 7], [5], [5, 6, 7, 8]]), None, VOCABULARY, 4)
    assert [row(encoded, number)[0] for number in range(3)] == [[CLS, 5, 6, SEP], [CLS, 5, SEP], [CLS, 5, 6, SEP]]
    assert encoded.dropped.tolist() == [[1, 0], [0, 0], [2, 0]]
    assert encoded.note == "2 of 3 texts were too long: 3 pieces were cut off, at most 2 of one."


def test_there_must_be_room_for_special_tokens():
    assert row(assemble(pieces([[5]]), None, VOCABULARY, 2), 0)[0] == [CLS, SEP]
    with pytest.raises(ConfigError, match="max_length=2"):
        assemble(pieces([[5]]), pieces([[5]]), VOCABULARY, 2)


def test_rows_are_padded():
    encoded = assemble(pieces([[7, 8], [], [9]]), pieces([[5], [6], []]), VOCABULARY, 512)
    ids, segments, mask = encoded.dense(np.asarray([2, 0]))
    assert ids.tolist() == [[CLS, 9, SEP, SEP, PAD, PAD], [CLS, 7, 8, SEP, 5, SEP]]
    assert segments.tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    assert mask.tolist() == [[True] * 4 + [False] * 2, [True] * 6]
    assert ids.dtype == segments.dtype == np.int32
    ids, _, mask = encoded.dense(length=8)
    assert ids.shape == (3, 8) and mask.sum(axis=1).tolist() == encoded.lengths.tolist()
    with pytest.raises(ConfigError, match=r"6 tokens.*length=5"):
        encoded.dense(length=5)
    assert assemble(pieces([]), None, VOCABULARY, 9).dense()[0].shape == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6))))
def test_spans_are_ranges_one_after_another(pairs):
    starts, lengths = (np.asarray(column, np.int64) for column in (zip(*pairs) if pairs else ([], [])))
    assert spans(starts, lengths).tolist() == [i for start, length in pairs for i in range(start, start + length)]


def test_the_longer_text_keeps_the_odd_piece():
    first, second = longest_first(np.asarray([9, 5, 6, 1]), np.asarray([5, 9, 6, 9]), 9)
    assert first.tolist() == [5, 4, 4, 1] and second.tolist() == [4, 5, 5, 8]
