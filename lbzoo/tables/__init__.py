"""Tables of texts as people have them: txt, csv, tsv and jsonl in; csv, tsv and jsonl out; one row at a time."""

from __future__ import annotations

from lbzoo.tables.reading import FORMATS, Row, Table, choose_column, guess_format, open_table
from lbzoo.tables.source import Lines, open_lines
from lbzoo.tables.writing import RowWriter, new_names, open_writer, output_format, replaced

__all__ = [
    "FORMATS",
    "Lines",
    "Row",
    "RowWriter",
    "Table",
    "choose_column",
    "guess_format",
    "new_names",
    "open_lines",
    "open_table",
    "open_writer",
    "output_format",
    "replaced",
]
