"""Files, folders or standard input -> blocks of rows, read once, in order, with bounded memory.

A block of jsonl or txt is the raw bytes of whole lines: whoever gets the block decodes it. A csv or tsv file is cut
into rows here, because only its reader knows where a row ends. A block says which input and line it starts at.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, Union

from lbzoo.errors import TableError
from lbzoo.tables.reading import FORMATS, cell_reader, find_delimiter, guess_format, tsv_is_quoted
from lbzoo.tables.source import STDIN, Lines, decompressed

# Fields that hold the text and the title in the review sets people have: Amazon 2014-2018, Amazon 2023 and ours,
# Amazon's own tsv files, and the plain ones.
KNOWN_FIELDS = (
    ("reviewText", "summary"),
    ("text", "title"),
    ("review_body", "review_headline"),
    ("review", None),
    ("sentence", None),
)
SPLIT_FIELD = "split"
LONGEST_LINE = 1 << 24  # bytes; a longer one is broken, so that a file without line ends cannot fill the memory
_READ_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError)

Row = tuple[int, Optional[str], str, Optional[str]]  # line, title, text, split
Broken = tuple[int, int, str]  # first line, how many lines, why


@dataclasses.dataclass(frozen=True)
class Fields:
    """Which fields hold the text and the title; None: those of `KNOWN_FIELDS` that are there.

    A title is only looked for where `text` is None or `title` is named. `split` False ignores the data's own split.
    """

    text: Optional[str] = None
    title: Optional[str] = None
    split: bool = True

    @functools.cached_property
    def pairs(self) -> tuple[tuple[str, Optional[str]], ...]:
        """(text field, title field or None), in the order in which they are looked for."""
        known = KNOWN_FIELDS if self.text is None else ((self.text, None),)
        return tuple((text, self.title or title) for text, title in known)

    def find(self, names: Any) -> Optional[tuple[str, Optional[str]]]:
        """(text field, title field or None) among `names`, a container; None where there is none."""
        for text, title in self.pairs:
            if text in names:
                return text, title if title in names else None
        return None


@dataclasses.dataclass(frozen=True)
class Input:
    """One file to read; `path` None is standard input. `name` is relative to what was asked for."""

    path: Optional[Path]
    name: str
    format: Optional[str]
    size: int


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of one input.

    Attributes:
        source: position of the input in the list.
        format: "jsonl" or "txt" (`data` is bytes, whole lines), or "rows" (`data` is a list of `Row`).
        line: number of the first line, from 1.
        broken: what could not be read as a row between these.
        position: bytes of the input that had been read by then.
    """

    source: int
    format: str
    line: int
    data: Union[bytes, list[Row]]
    broken: tuple[Broken, ...]
    position: int


def find_inputs(paths: Sequence[Any], format: Optional[str] = None) -> tuple[list[Input], list[str]]:
    """(what to read, names in folders passed over because their suffix tells no format).

    Folders are walked, in the order of names; hidden files and folders are left out. "-" is standard input.

    Raises:
        TableError: nothing is there, nothing is readable, or a file's name does not tell its format.
    """
    if format is not None and format not in FORMATS:
        raise TableError(f"unknown format. Received: {format!r}. Known: {', '.join(FORMATS)}.")
    found: list[Input] = []
    passed_over: list[str] = []
    for path in paths:
        if str(path) == "-":
            found.append(Input(None, STDIN, format, 0))
        elif Path(path).is_dir():
            for file in _walk(Path(path)):
                name = file.relative_to(path).as_posix()
                if format or guess_format(file):
                    found.append(Input(file, name, format or guess_format(file), file.stat().st_size))
                else:
                    passed_over.append(name)
        elif Path(path).exists():  # a named pipe counts
            if not (format or guess_format(path)):
                raise TableError(f"the name of {path} does not tell its format. Pass --format {'|'.join(FORMATS)}.")
            found.append(Input(Path(path), Path(path).name, format or guess_format(path), Path(path).stat().st_size))
        else:
            raise TableError(f"no such file or folder. Received: {str(path)!r}. Pass files, folders, or - for a pipe.")
    if not found:
        more = f" Passed over: {', '.join(passed_over[:5])}." if passed_over else ""
        raise TableError(f"nothing to read in {', '.join(map(str, paths))}: no .jsonl, .csv, .tsv or .txt file.{more}")
    return found, passed_over


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(here) / name


def blocks(
    inputs: Sequence[Input],
    fields: Fields,
    size: int,
    header: bool = True,
    notice: Callable[[str], None] = lambda message: None,
) -> Iterator[Block]:
    """Every input's blocks, each of about `size` bytes.

    Args:
        header: False where the first row of a csv or tsv file is data; its columns are then called 1, 2, ...
        notice: is told once about each choice that a file did not state.

    Raises:
        TableError: a file is damaged or cut short, not compressed as its name says, or lacks the column of the texts.
    """
    for source, each in enumerate(inputs):
        file = sys.stdin.buffer if each.path is None else open(each.path, "rb")
        try:
            raw = decompressed(file, each.name)
            format = each.format or _format_of_a_pipe(raw)
            if format in ("jsonl", "txt"):
                parts = ((format, *part) for part in _line_blocks(raw, size))
            else:
                parts = (("rows", *part) for part in _row_blocks(raw, each.name, format, fields, size, header, notice))
            for part in parts:
                yield Block(source, *part, position=file.tell() if each.path and file.seekable() else 0)
        except _READ_ERRORS as error:
            raise TableError(
                f"{each.name} cannot be read to its end, damaged or cut short. Received: {error or 'an early end'}. "
                "Fetch it again, or leave it out."
            ) from error
        finally:
            if each.path is not None:
                file.close()


def _format_of_a_pipe(raw: Any) -> str:
    return "jsonl" if raw.peek(1 << 10)[: 1 << 10].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "txt"


def _line_blocks(raw: Any, size: int) -> Iterator[tuple[int, bytes, tuple[Broken, ...]]]:
    """(first line, whole lines, broken) of a binary file."""
    carry, line, too_long = b"", 1, False
    first = True
    while chunk := raw.read(size):
        if first and chunk.startswith(b"\xef\xbb\xbf"):
            chunk = chunk[3:]
        first, broken = False, ()
        if too_long:  # the rest of a line that was given up
            end = chunk.find(b"\n") + 1
            if not end:
                continue
            chunk, too_long = chunk[end:], False
            broken, line = ((line, 1, f"longer than {LONGEST_LINE} bytes"),), line + 1
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            carry += chunk
            if len(carry) > LONGEST_LINE:
                carry, too_long = b"", True
            if broken:
                yield line, b"", broken
            continue
        data, carry = carry + chunk[:cut], chunk[cut:]
        yield line, data, broken
        line += data.count(b"\n")
    if too_long:
        yield line, b"", ((line, 1, f"longer than {LONGEST_LINE} bytes"),)
    elif carry:
        yield line, carry, ()


def _row_blocks(
    raw: Any, name: str, format: str, fields: Fields, size: int, header: bool, notice: Callable[[str], None]
) -> Iterator[tuple[int, list[Row], tuple[Broken, ...]]]:
    """(first line, rows, broken) of a csv or tsv file."""
    lines = Lines(name, _characters(raw, name))
    if not lines.peek(1)[0]:
        return
    delimiter = "\t" if format == "tsv" else find_delimiter(lines, notice)
    records = _records(lines, delimiter, format == "csv" or tsv_is_quoted(lines))
    first = next(((start, cells) for start, _, cells, _ in records if cells), None)
    if first is None:
        return
    columns = first[1] if header else [str(number + 1) for number in range(len(first[1]))]
    places = _columns(columns, fields, name)
    rows: list[Row] = [] if header else [_row(first[0], first[1], places)]
    broken: list[Broken] = []
    start, held = first[0], 0
    for line, count, cells, reason in records:
        if reason is None and len(cells) > len(columns) and not any(cells[len(columns) :]):
            cells = cells[: len(columns)]  # empty cells at the end, as spreadsheets leave them
        if reason is None and cells and len(cells) != len(columns):
            reason = f"{len(cells)} cells where the first row has {len(columns)}"
        if reason is not None:
            broken.append((line, count, reason))
        elif cells:
            rows.append(_row(line, cells, places))
            held += len(rows[-1][2]) + 100
        if held >= size or len(broken) >= 1000:
            yield start, rows, tuple(broken)
            start, rows, broken, held = line + count, [], [], 0
    if rows or broken:
        yield start, rows, tuple(broken)


def _characters(raw: Any, name: str) -> Iterator[str]:
    """UTF-8 with what is not valid escaped: the row it stands in is broken, not the file."""
    text = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
    since = 0
    try:
        while chunk := text.read(1 << 16):
            last = max(chunk.rfind("\n"), chunk.rfind("\r"))
            since = len(chunk) - last - 1 if last >= 0 else since + len(chunk)
            if since > LONGEST_LINE:
                raise TableError(f"{name} has a line of more than {LONGEST_LINE} characters: is it a csv or tsv file?")
            yield chunk
    finally:
        with contextlib.suppress(ValueError):  # after an error the file may be closed already
            text.detach()


def _records(lines: Lines, delimiter: str, quoted: bool) -> Iterator[tuple[int, int, list[str], Optional[str]]]:
    """(first line, how many lines, cells, why it is broken or None) of each record."""
    limit = csv.field_size_limit(LONGEST_LINE)  # a quotation mark that nothing closes swallows no more than this
    try:
        reader = cell_reader(lines, delimiter, quoted)
        while True:
            start = lines.number + 1
            try:
                cells, reason = next(reader), None
            except StopIteration:
                return
            except csv.Error as error:
                cells, reason = [], str(error)
            yield start, lines.number - start + 1, cells, reason
    finally:
        csv.field_size_limit(limit)


def _columns(columns: list[str], fields: Fields, name: str) -> tuple[int, Optional[int], Optional[int]]:
    names = [column.strip() for column in columns]
    if fields.text is None and len(names) == 1:
        return 0, None, None
    found = fields.find(names)
    if found is None or (fields.title is not None and fields.title not in names):
        missing = fields.title if found else fields.text or " or ".join(text for text, _ in KNOWN_FIELDS)
        raise TableError(
            f"{name} has no column {missing}. Received the header: {', '.join(names)[:300]}. Name the column of the "
            "texts with --text-field, that of titles with --title-field (with --no-header its number, from 1)."
        )
    text, title = found
    split = names.index(SPLIT_FIELD) if fields.split and SPLIT_FIELD in names else None
    return names.index(text), names.index(title) if title is not None else None, split


def _row(line: int, cells: list[str], places: tuple[int, Optional[int], Optional[int]]) -> Row:
    text, title, split = places
    return line, None if title is None else cells[title], cells[text], None if split is None else cells[split]
