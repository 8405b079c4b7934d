"""Vocabulary files are read row by row, whatever stands in a row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import CheckpointError
from lbzoo.text.vocabulary import SPECIAL, Vocabulary, read_vocabulary

ODD = ["", "a", "##a", " a", "a ", "\t", "\u2028", "\x85", "\x0b", "\x1c", "\xa0", "a\rb", "", "a", "\U0001f600"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False], ids=["last row ended", "last row open"])
def test_odd_rows_are_pieces_as_they_stand(tmp_path, end, last):
    path = tmp_path / "vocab.txt"
    path.write_bytes((end.join([*SPECIAL, *ODD]) + end * last).encode())
    vocabulary = read_vocabulary(path)
    assert vocabulary.pieces == (*SPECIAL, *ODD)
    assert vocabulary.ids["a"] == 5 + 13  # of equal rows the last
    assert vocabulary.ids[""] == 5 + 12
    assert (vocabulary.pad, vocabulary.unk, vocabulary.cls, vocabulary.sep, vocabulary.mask) == (0, 1, 2, 3, 4)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))))
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    rows = [row.rstrip("\r") for row in rows]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_bytes(Vocabulary([*rows, *SPECIAL]).to_bytes())
    assert read_vocabulary(path) == Vocabulary([*rows, *SPECIAL])


def test_blank_rows_at_the_end_have_ids_too(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in [*SPECIAL, "", ""]))
    assert len(read_vocabulary(path)) == 7


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(SPECIAL), encoding="utf-8-sig")
    assert read_vocabulary(path).pieces == SPECIAL


@pytest.mark.parametrize("piece", ["two\nrows", "ends\r"])
def test_a_row_that_would_not_come_back_is_not_written(piece):
    with pytest.raises(CheckpointError, match="line end"):
        Vocabulary([*SPECIAL, piece]).to_bytes()


def test_files_that_are_no_vocabulary_are_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    with pytest.raises(CheckpointError, match=r"cannot be read.*No such file"):
        read_vocabulary(path)
    path.write_bytes(b"[PAD]\n\xff\xfe\n")
    with pytest.raises(CheckpointError, match="no UTF-8"):
        read_vocabulary(path)
    path.write_text("[PAD]\n[UNK]\nthe\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt lacks \[CLS\], \[SEP\], \[MASK\]. Received: 3 rows, first"):
        read_vocabulary(path)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="0 rows, first nothing"):
        read_vocabulary(path)
