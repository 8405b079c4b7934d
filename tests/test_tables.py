"""Tables: what people's files look like, each read right or refused with file and row; round trips."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma

import pytest

from lbzoo.errors import TableError
from lbzoo.tables import Lines, open_table
from lbzoo.tables import source as table_source


@pytest.fixture
def read(tmp_path):
    """Write bytes or text to a file and read it as a table: (texts, columns, notes, rows)."""

    def read(data, name="reviews.csv", **options):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
        notes = []
        with open_table(path, notice=notes.append, **options) as table:
            rows = list(table)
        return [row.text for row in rows], table.columns, notes, rows

    return read


def texts_of(result):
    return result[0]


# encodings


@pytest.mark.parametrize(
    "encoded",
    [
        "text,n\ncafé – “good”,1\n".encode("utf-8-sig"),
        "text,n\ncafé – “good”,1\n".encode("utf-16"),
        codecs.BOM_UTF16_BE + "text,n\ncafé – “good”,1\n".encode("utf-16-be"),
        codecs.BOM_UTF32_LE + "text,n\ncafé – “good”,1\n".encode("utf-32-le"),
    ],
    ids=["utf-8 mark", "utf-16 le", "utf-16 be", "utf-32"],
)
def test_byte_order_marks(read, encoded):
    texts, columns, notes, _ = read(encoded)
    assert (texts, columns, notes) == (["café – “good”"], ["text", "n"], [])


def test_windows_1252_after_utf8_failed_is_said_once(read):
    data = "text,n\nplain,1\ncafé – “good”,2\nnaïve,3\n".encode("cp1252")
    texts, _, notes, _ = read(data)
    assert texts == ["plain", "café – “good”", "naïve"]
    assert len(notes) == 1 and "Windows-1252" in notes[0] and "0xe9" in notes[0]


def test_windows_1252_late_in_a_large_file(read):
    data = b"text,n\n" + b"plain ascii text,1\n" * 20_000 + "café,2\n".encode("cp1252")
    texts, _, notes, _ = read(data)
    assert len(texts) == 20_001 and texts[-1] == "café" and len(notes) == 1


def test_a_character_cut_by_the_chunk_border(read, monkeypatch):
    monkeypatch.setattr(table_source, "CHUNK", 3)
    assert texts_of(read("text\r\nnaïve 😀 text\r\nzwei\r\n")) == ["naïve 😀 text", "zwei"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("text\né\n".encode() + b"\xe9\n", ["line 3", "0xe9", "not valid UTF-8"]),
        ("text\nПривет, это большой русский текст о фильме\n".encode("cp1251"), ["line 2", "--encoding"]),
        ("text\nこの映画はとても面白かったです。\n".encode("shift-jis"), ["line 2", "--encoding"]),
        (b"text\nab\x81cd\n", ["line 2", "0x81"]),
        ("text\nabc\n".encode("utf-16-le"), ["line 1", "utf-16-le"]),
        (bytes(range(256)) * 9, ["line 1", "binary"]),
        (b"PK\x03\x04\x14\x00\x06\x00", ["Excel"]),
        (b"%PDF-1.7\n", ["PDF"]),
        (b"", ["is empty"]),
        (codecs.BOM_UTF8, ["is empty"]),
        (b"\n\n\n", ["is empty"]),
        (codecs.BOM_UTF16_LE + b"t\x00e", ["UTF-16", "line 1"]),
    ],
)
def test_what_is_no_text_is_refused_with_file_and_line(read, data, said):
    with pytest.raises(TableError) as caught:
        read(data)
    assert all(part in str(caught.value) for part in ["reviews.csv", *said]), str(caught.value)


def test_a_named_encoding(read):
    data = "text\nПривет\n".encode("cp1251")
    assert texts_of(read(data, encoding="cp1251")) == ["Привет"]
    with pytest.raises(TableError, match="line 2: not valid UTF-8"):
        read(data, encoding="utf-8")
    for unknown in ("klingon", "base64"):
        with pytest.raises(TableError, match="unknown text encoding"):
            read(data, encoding=unknown)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_compressed(read, suffix, pack):
    data = pack(b"text,n\na,1\nb,2\n" * 1)
    assert texts_of(read(data, "reviews.csv" + suffix)) == ["a", "b"]
    with pytest.raises(TableError, match="damaged or cut short"):
        read(data[:-6], "reviews.csv" + suffix)
    with pytest.raises(TableError, match="not compressed as its name says"):
        read(b"text,n\na,1\n", "reviews.csv" + suffix)


# lines


def test_only_line_ends_end_a_line(read):
    strange = "one\u2028two\u2029three\u0085four\x0bfive\x0csix\x1cseven"
    assert texts_of(read(f"text,n\n{strange},1\n")) == [strange]
    assert texts_of(read(f"{strange}\nnext\n", "reviews.txt")) == [strange, "next"]
    assert texts_of(read(json.dumps({"text": strange}, ensure_ascii=False) + "\n", "reviews.jsonl")) == [strange]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_and_none_at_the_end(read, end):
    assert texts_of(read(f"text,n{end}a,1{end}b,2")) == ["a", "b"]
    assert texts_of(read(f"a{end}{end}b{end}", "reviews.txt")) == ["a", "", "b"]


def test_line_end_cut_between_two_chunks():
    lines = Lines("x", iter(["a\r", "\nb", "\r", "c\r"]))
    assert list(lines) == ["a\r\n", "b\r", "c\r"]
    assert lines.number == 3


# csv


def test_quoted_newlines_and_marks(read):
    texts, _, _, rows = read('id,text\n1,"line one\nline ""two""\r\n\nlast"\n2,b\n')
    assert texts == ['line one\nline "two"\r\n\nlast', "b"]
    assert [(row.number, row.line) for row in rows] == [(1, 2), (2, 6)]


def test_other_columns_are_kept_in_order_and_duplicates_too(read):
    _, columns, _, rows = read("a,text,a,\n1,x,2,3\n")
    assert columns == ["a", "text", "a", ""]
    assert rows[0].items == [("a", "1"), ("text", "x"), ("a", "2"), ("", "3")]


def test_nul_empty_and_huge_cells(read):
    huge = "long text " * 50_000
    assert texts_of(read(f'text,n\na\0b,1\n,2\n"",3\n{huge},4\n')) == ["a\0b", "", "", huge]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("text,n\nfine,1\nshort\n", ["row 2 (line 3)", "2 cells", "Received: 1", "empty cell"]),
        ("text,n\nlong, with a comma,1\n", ["row 1 (line 2)", "Received: 3", "quotation marks"]),
        ('text,n\n"a\nb",1\n"said "no" to it",2\n', ["line 4", "stray quotation mark"]),
        ('text,n\nfine,1\n"never closed,2\nmore,3\n', ["line 3", "nothing closes it"]),
    ],
)
def test_broken_rows_are_refused_with_their_place(read, data, said):
    with pytest.raises(TableError) as caught:
        read(data)
    assert all(part in str(caught.value) for part in ["reviews.csv", *said]), str(caught.value)


def test_quotation_marks_inside_a_cell_are_characters(read):
    assert texts_of(read('text,n\na 5" screen,1\nthe "best" one,2\n')) == ['a 5" screen', 'the "best" one']
    assert texts_of(read('text;n\n"best" one;2\n', quoting="none")) == ['"best" one']


def test_empty_cells_behind_the_last_column_are_dropped(read):
    assert texts_of(read("text,n\na,1,,\n")) == ["a"]


def test_blank_lines_between_rows_are_said(read):
    texts, _, notes, _ = read("text,n\n\na,1\n\n\nb,2\n\n")
    assert texts == ["a", "b"]
    assert len(notes) == 1 and "3 blank lines" in notes[0]


def test_header_only(read):
    assert read("text,label\n")[:2] == ([], ["text", "label"])


def test_semicolons_and_tabs_are_found_and_said(read):
    texts, columns, notes, _ = read("text;n\na, b;1\n")
    assert (texts, columns) == (["a, b"], ["text", "n"])
    assert "';'" in notes[0]
    assert read("text|n\na|1\n", delimiter="|")[:2] == (["a"], ["text", "n"])
    with pytest.raises(TableError, match="one character"):
        read("text,n\n", delimiter="ab")


# columns


def test_the_column_of_the_texts(read):
    assert texts_of(read("id,Review\n1,a\n")) == ["a"]
    assert texts_of(read("sentence,text\nno,yes\n")) == ["yes"]
    assert texts_of(read("title,body\na,b\n", column="body")) == ["b"]
    assert texts_of(read("title,body\na,b\n", column="2")) == ["b"]
    assert texts_of(read("title,2,3\na,b,c\n", column="2")) == ["b"]
    assert texts_of(read("text,text\na,b\n", column="2")) == ["b"]


@pytest.mark.parametrize(
    ("data", "column", "said"),
    [
        ("title,body\na,b\n", None, ["--column", "'title', 'body'"]),
        ("title,txet\na,b\n", "text", ["no column 'text'", "Did you mean 'txet'", "'title', 'txet'"]),
        ("title, text\na,b\n", "text", ["Did you mean ' text'"]),
        ("text,text\na,b\n", "text", ["2 columns named 'text'", "--column 1 or 2"]),
        ("title,body\na,b\n", "3", ["no column '3'"]),
    ],
)
def test_a_missing_column_lists_those_that_are_there(read, data, column, said):
    with pytest.raises(TableError) as caught:
        read(data, column=column)
    assert all(part in str(caught.value) for part in ["reviews.csv", *said]), str(caught.value)


def test_no_header(read):
    assert read("a,1\nb,2\n", header=False, column="1")[:2] == (["a", "b"], ["1", "2"])
    assert read("a\nb\n", header=False)[:2] == (["a", "b"], ["text"])


def test_a_text_is_not_swallowed_as_a_header(read):
    with pytest.raises(TableError, match="--no-header"):
        read("I like it very much\nI do not\n")
    texts, _, notes, _ = read("comment\na\n")
    assert texts == ["a"] and "'comment'" in notes[0]


# tsv


def test_tsv_of_data_sets_has_bare_quotation_marks(read):
    data = 'label\ttext\n0\t" unbalanced\n1\t"He" said\n0\tplain\n'
    assert texts_of(read(data, "reviews.tsv")) == ['" unbalanced', '"He" said', "plain"]


def test_tsv_of_spreadsheets_is_quoted(read):
    data = 'label\ttext\n0\t"two\nlines\tand ""marks"""\n1\tplain\n'
    assert texts_of(read(data, "reviews.tsv")) == ['two\nlines\tand "marks"', "plain"]
    with pytest.raises(TableError, match=r"row 2 \(line 3\)"):
        read('label\ttext\n0\t"two\nlines"\n', "reviews.tsv", quoting="none")


def test_tsv_open_mark_that_would_swallow_the_file(read):
    data = 'label\ttext\n0\t"open\n' + "1\tplain\n" * 200_000
    texts = texts_of(read(data, "reviews.tsv"))
    assert len(texts) == 200_001 and texts[0] == '"open'


# jsonl


def test_jsonl(read):
    data = '{"id": 1, "text": "a\\nb", "x": null}\n\n{"text": null, "id": 2.5, "tags": ["t"]}\n'
    texts, columns, notes, rows = read(data, "reviews.jsonl")
    assert texts == ["a\nb", ""]
    assert columns == ["id", "text", "x", "tags"]
    assert rows[1].items == [("text", None), ("id", 2.5), ("tags", ["t"])]
    assert "1 blank line " in notes[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "a"', ["not valid JSON"]),
        ('{"text": 3}', ["must be a string", "Received: 3"]),
        ('{"txt": "a"}', ["no 'text'", "'txt'"]),
        ('["a"]', ["an object"]),
        ('"a"', ["an object"]),
        ('{"text": "a", "text": "b"}', ["appears twice"]),
        ("[" * 100_000, ["not valid JSON"]),
    ],
)
def test_broken_jsonl_lines_are_refused_with_their_place(read, line, said):
    with pytest.raises(TableError) as caught:
        read('{"text": "fine"}\n' + line + "\n", "reviews.jsonl")
    message = str(caught.value)
    assert all(part in message for part in ["reviews.jsonl, row 2 (line 2)", *said]), message


def test_a_json_array_is_named(read):
    with pytest.raises(TableError, match="one JSON array"):
        read('[{"text": "a"},\n{"text": "b"}]\n', "reviews.json")


# formats


def test_format_by_suffix_or_by_name(read):
    assert texts_of(read("a,b\n", "notes.txt")) == ["a,b"]
    assert texts_of(read('{"text": "a"}\n', "x.NDJSON")) == ["a"]
    assert texts_of(read("text,n\na,1\n", "x.dat", format="csv")) == ["a"]
    with pytest.raises(TableError, match="--format"):
        read("a\n", "x.dat")
    with pytest.raises(TableError, match="unknown table format"):
        read("a\n", "x.dat", format="xlsx")


@pytest.mark.parametrize(
    ("data", "options", "texts"),
    [
        (b"one, two\nthree\n", {}, ["one, two", "three"]),
        (b'{"text": "a"}\n', {}, ["a"]),
        (b"text,n\na,1\n", {"column": "text"}, ["a"]),
        (b"text\tn\na\t1\n", {"format": "tsv"}, ["a"]),
        (gzip.compress(b"one\n"), {}, ["one"]),
    ],
)
def test_standard_input(monkeypatch, data, options, texts):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with open_table("-", **options) as table:
        assert table.name == "standard input"
        assert [row.text for row in table] == texts
