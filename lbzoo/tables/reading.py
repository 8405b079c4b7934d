"""Rows of a txt, csv, tsv or jsonl file: the text of each and its other columns, or an error with file and row."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import difflib
import itertools
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, Callable

from lbzoo.errors import TableError
from lbzoo.tables.source import OPENERS, Lines, open_lines

FORMATS = ("txt", "csv", "tsv", "jsonl")
TEXT_COLUMNS = ("text", "review", "sentence")

_SUFFIXES = {
    ".txt": "txt",
    ".text": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_SAMPLE = 1 << 20  # characters looked at to tell whether a tsv file quotes its cells
_AHEAD = 1000  # jsonl rows looked at to learn the column names
_CELL_LIMIT = 2**31 - 1  # the largest that csv takes on every platform
_NUL = "\ud800"  # csv refuses NUL before Python 3.11; a strictly decoded text holds no lone surrogate


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: `number` counts data rows from 1, `line` is where it starts in the file, `items` are all its columns."""

    number: int
    line: int
    text: str
    items: list[tuple[str, Any]]


class Table:
    """Rows of one file, read once, in order.

    Attributes:
        name: the file's name, for messages.
        format: "txt", "csv", "tsv" or "jsonl".
        columns: column names in order; for jsonl the union over the first 1,000 rows.
        column: the name of the column that holds the texts.
    """

    def __init__(self, name: str, format: str, columns: list[str], column: str, rows: Iterator[Row]):
        self.name, self.format, self.columns, self.column = name, format, columns, column
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        return self._rows


def guess_format(path: Any) -> str | None:
    """The format that a file's suffix names, a compression suffix aside; None if it names none."""
    path = pathlib.PurePath(str(path))
    if path.suffix.lower() in OPENERS:
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower())


@contextlib.contextmanager
def open_table(
    path: Any,
    column: str | None = None,
    format: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    quoting: str = "auto",
    encoding: str | None = None,
    notice: Callable[[str], None] = lambda message: None,
) -> Iterator[Table]:
    """Open a file of texts ("-" is standard input) as a `Table`.

    Args:
        column: name of the column that holds the texts, or its number from 1. By default the only column, or one named
            text, review or sentence.
        format: "txt" (a text a line), "csv", "tsv" or "jsonl"; by default from the suffix, and for standard input from
            the first line: jsonl where it is a JSON object, csv where `column` is given, txt otherwise.
        header: False where the first row of a csv or tsv file is already data; columns are then called 1, 2, ...
        delimiter: between csv cells; by default a comma, or what else the header shows.
        quoting: "csv", "none" (a quotation mark is a character as any other), or "auto": csv for csv, and for tsv
            whichever fits the first megabyte.
        encoding: of the file; by default UTF-8, by its mark, or Windows-1252 (see `open_lines`).
        notice: is told once about each choice that the file did not state.

    Raises:
        TableError: the file cannot be read as it is; names the file and the row.
        OSError: the file cannot be opened.
    """
    if format is not None and format not in FORMATS:
        raise TableError(f"unknown table format. Received: {format!r}. Known: {', '.join(FORMATS)}.")
    format = format or guess_format(path)
    if format is None and str(path) != "-":
        raise TableError(f"the name of {path} does not tell its format. Pass --format {'|'.join(FORMATS)}.")
    with open_lines(path, encoding, notice) as lines:
        start, _ = lines.peek(1)
        if not start:
            raise TableError(f"{lines.name} is empty: it has no rows to read.")
        if format is None:
            format = "jsonl" if _is_object(start[0]) else "csv" if column is not None else "txt"
        if format == "txt":
            yield _text_table(lines, column)
        elif format == "jsonl":
            yield _json_table(lines, column, notice)
        else:
            yield _cell_table(lines, format, column, header, delimiter, quoting, notice)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def choose_column(columns: list[str], column: str | None, name: str, option: str = "--column") -> int:
    """Position of the column of that name or number from 1; None finds the texts. TableError, which names `option`."""
    listed = ", ".join(map(repr, columns[:50])) + (", ..." if len(columns) > 50 else "")
    if column is None:
        if len(columns) == 1:
            return 0
        plain = [each.strip().casefold() for each in columns]
        for usual in TEXT_COLUMNS:
            if plain.count(usual) == 1:
                return plain.index(usual)
        raise TableError(f"{name}: which column holds the texts? Pass {option} NAME (or its number). Found: {listed}.")
    if columns.count(column) == 1:
        return columns.index(column)
    if column in columns:
        places = [str(i + 1) for i, each in enumerate(columns) if each == column]
        raise TableError(f"{name} has {len(places)} columns named {column!r}. Pass {option} {' or '.join(places)}.")
    if column.isdecimal() and 1 <= int(column) <= len(columns):
        return int(column) - 1
    near = difflib.get_close_matches(column.strip().casefold(), [each.strip().casefold() for each in columns], n=1)
    meant = [f" Did you mean {each!r}?" for each in columns if near and each.strip().casefold() == near[0]][:1]
    raise TableError(f"{name} has no column {column!r}.{''.join(meant)} Found: {listed}.")


# txt: a text a line


def _text_table(lines: Lines, column: str | None) -> Table:
    index = choose_column(["text"], column, lines.name)

    def rows() -> Iterator[Row]:
        for line in lines:
            text = line[:-2] if line.endswith("\r\n") else line.rstrip("\r\n")
            yield Row(lines.number, lines.number, text, [("text", text)])

    return Table(lines.name, "txt", ["text"], ["text"][index], rows())


# csv and tsv


def _cell_table(lines, format, column, header, delimiter, quoting, notice) -> Table:
    csv.field_size_limit(max(csv.field_size_limit(), _CELL_LIMIT))
    if quoting not in ("auto", "csv", "none"):
        raise TableError(f"quoting is auto, csv or none. Received: {quoting!r}.")
    if delimiter is None:
        delimiter = "\t" if format == "tsv" else find_delimiter(lines, notice)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableError(f"a delimiter is one character, no quotation mark or line end. Received: {delimiter!r}.")
    quoted = quoting == "csv" or (quoting == "auto" and (format == "csv" or tsv_is_quoted(lines)))
    records = _records(lines, delimiter, quoted)
    blank, start, first = _next_filled(records)
    if first is None:
        raise TableError(f"{lines.name} is empty: it has no rows to read.")
    if header:
        columns = first
        if column is None and len(columns) == 1 and columns[0].strip().casefold() not in TEXT_COLUMNS:
            if len(columns[0].split()) > 3:
                raise TableError(
                    f"the first row of {lines.name} reads like a text, not like a header. Received: "
                    f"{columns[0][:60]!r}. Pass --no-header if it is a text, or name the --column."
                )
            notice(f"{lines.name} has one column, taken as the texts: {columns[0]!r}. --no-header if that is a text.")
    else:
        columns = ["text"] if len(first) == 1 else [str(i + 1) for i in range(len(first))]
        records = itertools.chain([(start, first)], records)
    index = choose_column(columns, column, lines.name)
    rows = _cell_rows(lines.name, records, columns, index, delimiter, notice)
    return Table(lines.name, format, columns, columns[index], rows)


def _records(lines: Lines, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """(first line, cells) of each record; a blank line is a record without cells."""
    stand_in = sys.version_info < (3, 11)
    source = (line.replace("\0", _NUL) for line in lines) if stand_in else lines
    reader = cell_reader(source, delimiter, quoted)
    while True:
        start = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                what = "a quotation mark opens a cell here and nothing closes it"
            else:
                what = f"a stray quotation mark in a quoted cell, up to line {lines.number} ({error})"
            raise TableError(
                f"{lines.name}, line {start}: {what}. Double the marks inside a quoted cell, or pass --quoting none "
                "if quotation marks mean nothing in this file."
            ) from None
        yield start, [cell.replace(_NUL, "\0") for cell in cells] if stand_in else cells


def cell_reader(source: Iterator[str], delimiter: str, quoted: bool) -> Iterator[list[str]]:
    """csv.reader over lines, strict; without `quoted` a quotation mark is a character as any other."""
    if quoted:
        return csv.reader(source, delimiter=delimiter, strict=True)
    return csv.reader(source, delimiter=delimiter, quoting=csv.QUOTE_NONE, quotechar=None, strict=True)


def _next_filled(records) -> tuple[int, int, list[str] | None]:
    blank = 0
    for start, cells in records:
        if cells:
            return blank, start, cells
        blank += 1
    return blank, 0, None


def _cell_rows(name, records, columns, index, delimiter, notice) -> Iterator[Row]:
    skipped = 0
    for number in itertools.count(1):
        blank, start, cells = _next_filled(records)
        if cells is None:
            break
        skipped += blank
        if len(cells) > len(columns) and not any(cells[len(columns) :]):
            cells = cells[: len(columns)]  # empty cells at the end, as spreadsheets leave them
        if len(cells) != len(columns):
            why = (
                f"A text that holds {delimiter!r} or a line end must stand in quotation marks."
                if len(cells) > len(columns)
                else f"An empty cell needs its {delimiter!r} all the same; a text with a line end, quotation marks."
            )
            raise TableError(
                f"{name}, row {number} (line {start}) must have {len(columns)} cells as the first row has. "
                f"Received: {len(cells)}. {why}"
            )
        yield Row(number, start, cells[index], list(zip(columns, cells)))
    if skipped:
        notice(f"{name}: {skipped} blank line{'s' * (skipped > 1)} between the rows passed over.")


def find_delimiter(lines: Lines, notice) -> str:
    """A comma, unless the header has none but holds the semicolons or tabs that spreadsheets write in its place."""
    first = lines.peek(1)[0][0]
    for delimiter in (";", "\t"):
        if delimiter in first and "," not in first and '"' not in first:
            notice(f"{lines.name}: cells are taken to be divided by {delimiter!r}. --delimiter names another.")
            return delimiter
    return ","


def tsv_is_quoted(lines: Lines) -> bool:
    """Tell the tsv of spreadsheets (cells quoted) from that of data sets (a quotation mark is a character)."""
    sample, whole = lines.peek(_SAMPLE)
    if not any('"' in line for line in sample):
        return True
    sample = [line.replace("\0", _NUL) for line in sample]
    fits, finished = _widths_agree(cell_reader(iter(sample), "\t", True), whole)
    return fits and (finished or not _widths_agree(cell_reader(iter(sample), "\t", False), whole)[0])


def _widths_agree(reader, whole: bool) -> tuple[bool, bool]:
    """Whether every record is as wide as the first; and whether the last one came to an end."""
    width = None
    try:
        for cells in reader:
            width = width or len(cells)
            if cells and len(cells) != width:
                return False, True
    except csv.Error as error:
        cut = not whole and "unexpected end" in str(error)
        return cut, False
    return True, True


# jsonl: an object a line


def _json_table(lines: Lines, column: str | None, notice) -> Table:
    objects = _objects(lines, notice)
    ahead = list(itertools.islice(objects, _AHEAD))
    columns = list(dict.fromkeys(key for _, _, items in ahead for key, _ in items))
    if not columns:
        raise TableError(f"{lines.name} is empty: it has no rows to read.")
    column = columns[choose_column(columns, column, lines.name)]
    rows = (_json_row(lines.name, *each, column) for each in itertools.chain(ahead, objects))
    return Table(lines.name, "jsonl", columns, column, rows)


def _objects(lines: Lines, notice) -> Iterator[tuple[int, int, list[tuple[str, Any]]]]:
    number = blank = skipped = 0
    for line in lines:
        if not line.strip(" \t\r\n"):
            blank += 1
            continue
        skipped, blank, number = skipped + blank, 0, number + 1
        place = f"{lines.name}, row {number} (line {lines.number})"
        try:
            value = json.loads(line, object_pairs_hook=_pairs)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg}, character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
            array = " Is the file one JSON array? Write one object a line." if line.lstrip()[0] == "[" else ""
            raise TableError(f"{place}: not valid JSON ({reason}). Received: {line[:60]!r}.{array}") from None
        if not isinstance(value, dict):
            kind = "an array" if isinstance(value, list) else f"the value {json.dumps(value)[:60]}"
            raise TableError(f"{place}: each line of jsonl is an object with named columns. Received: {kind}.")
        yield number, lines.number, list(value.items())
    if skipped:
        notice(f"{lines.name}: {skipped} blank line{'s' * (skipped > 1)} between the rows passed over.")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} appears twice")
    return value


def _json_row(name: str, number: int, line: int, items: list[tuple[str, Any]], column: str) -> Row:
    held = dict(items)
    if column not in held:
        found = ", ".join(map(repr, held)) or "nothing"
        raise TableError(f"{name}, row {number} (line {line}) has no {column!r}. Found: {found}.")
    value = "" if held[column] is None else held[column]
    if not isinstance(value, str):
        raise TableError(
            f"{name}, row {number} (line {line}): {column!r} must be a string. Received: {json.dumps(value)[:60]}."
        )
    return Row(number, line, value, items)
