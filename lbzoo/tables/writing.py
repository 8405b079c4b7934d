"""Rows out, as csv, tsv or jsonl; a file appears whole or not at all."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import os
import pathlib
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from lbzoo.errors import TableError
from lbzoo.tables.reading import Row, guess_format
from lbzoo.tables.source import OPENERS

OUTPUT_FORMATS = ("csv", "tsv", "jsonl")

_REPLACEMENT = "lbzoo.replacement-character"
codecs.register_error(_REPLACEMENT, lambda error: (b"\xef\xbf\xbd" * (error.end - error.start), error.end))


def new_names(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """`names` for new columns, with `lbzoo_` before one that `columns` has already (and a number, if need be)."""
    chosen = []
    for name in names:
        candidates = [name, f"lbzoo_{name}"] + [f"lbzoo_{name}_{i}" for i in range(2, len(columns) + 3)]
        chosen.append(next(each for each in candidates if each not in columns))
    return chosen


@contextlib.contextmanager
def open_writer(
    path: Any, columns: Sequence[str], results: Sequence[str], format: str | None = None
) -> Iterator[RowWriter]:
    """A `RowWriter` to `path` ("-" is standard output, csv unless `format` says otherwise).

    A file is written beside `path` and takes its place at the end, so a failure leaves what was there before, and
    `path` may be the file that is being read. `.gz`, `.xz` and `.bz2` compress.

    Raises:
        TableError: the suffix names no format, or the columns do not fit it.
        OSError: the file cannot be written.
    """
    format = output_format(path, format)
    if str(path) == "-":
        sys.stdout.flush()
        stream = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors=_on_surrogates(format), newline="")
        try:
            yield RowWriter(stream, format, columns, results)
        finally:
            stream.detach()  # flushes, and leaves standard output open
        return
    with replaced(path) as binary, contextlib.ExitStack() as stack:
        opener = OPENERS.get(pathlib.PurePath(str(path)).suffix.lower())
        if opener:
            binary = stack.enter_context(opener(binary, "wb"))
        stream = io.TextIOWrapper(binary, encoding="utf-8", errors=_on_surrogates(format), newline="")
        yield RowWriter(stream, format, columns, results)
        stream.flush()
        stream.detach()


def output_format(path: Any, format: str | None = None) -> str:
    """`format`, or what the suffix of `path` names; csv for standard output. Raises TableError if neither tells."""
    format = format or ("csv" if str(path) == "-" else guess_format(path))
    if format not in OUTPUT_FORMATS:
        raise TableError(
            f"the output is written as {', '.join(OUTPUT_FORMATS)}. Received: {path}. "
            f"Name it so, or pass --output-format {'|'.join(OUTPUT_FORMATS)}."
        )
    return format


def _on_surrogates(format: str) -> str:
    # "\ud800" is how JSON itself writes a lone surrogate; csv has no form for it, so U+FFFD as the model reads it
    return "backslashreplace" if format == "jsonl" else _REPLACEMENT


@contextlib.contextmanager
def replaced(path: Any) -> Iterator[Any]:
    """A binary file beside `path` that takes its place when the block ends well and vanishes when it does not."""
    target = pathlib.Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a device or a pipe; a folder raises here
        with open(target, "wb") as stream:
            yield stream
        return
    aside = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        stream = open(aside, "xb")
    except FileNotFoundError:
        raise FileNotFoundError(2, "the folder to write into does not exist", str(target.parent)) from None
    try:
        with stream:
            if target.exists():
                shutil.copymode(target, aside)
            yield stream
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


class RowWriter:
    """Writes rows: the columns they came with, then the results.

    Args:
        columns: names of the columns to keep, in order; the header of csv and tsv.
        results: names of the new columns.

    Raises:
        TableError: jsonl cannot hold two columns of one name; csv cannot take a column that the header lacks.
    """

    def __init__(self, stream: Any, format: str, columns: Sequence[str], results: Sequence[str]):
        self._stream, self._columns, self._results = stream, list(columns), list(results)
        self._csv = None
        if format == "jsonl":
            twice = sorted({name for name in self._columns if self._columns.count(name) > 1})
            if twice:
                raise TableError(
                    f"jsonl cannot hold two columns of one name. Received: {', '.join(map(repr, twice))}. Write csv."
                )
        else:
            # "\r\n" makes csv quote both characters inside a cell; _OneEnd writes "\n" at the end of the row
            self._csv = csv.writer(_OneEnd(stream), delimiter="\t" if format == "tsv" else ",", lineterminator="\r\n")
            self._csv.writerow(self._columns + self._results)

    def write(self, row: Row, values: Sequence[Any]) -> None:
        """Write one row and its results, in the order of `results`."""
        names = [name for name, _ in row.items]
        if self._csv is None:
            taken = [name for name in self._results if name in names]
            if taken:
                raise TableError(
                    f"row {row.number} (line {row.line}) has a column {taken[0]!r} that the rows before it lack, "
                    "and the result would take its place. Rename it."
                )
            value = dict(row.items, **dict(zip(self._results, values)))
            self._stream.write(json.dumps(value, ensure_ascii=False) + "\n")
            return
        if names == self._columns:
            cells = [value for _, value in row.items]
        else:
            unknown = [name for name in names if name not in self._columns]
            if unknown:
                raise TableError(
                    f"row {row.number} (line {row.line}) has a column {unknown[0]!r} that the first rows lack, "
                    "and the header is written. Write jsonl instead (--output-format jsonl)."
                )
            held = dict(row.items)
            cells = [held.get(name) for name in self._columns]
        self._csv.writerow([_cell(value) for value in cells] + [_cell(value) for value in values])


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


class _OneEnd:
    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, row: str) -> None:
        self._stream.write(row[:-2] + "\n")
