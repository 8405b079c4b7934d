"""A block of rows -> the bytes a model reads, each with its split and the number that decides its place.

Everything about a document's place depends on its bytes alone (and the seed, for the order), so that it is the same on
every machine, whatever the files, their order and the number of processes:

    split   sha256(bytes)[:8] as a share of 2**64, in proportion to the shards asked for; or the data's own split
    place   sha256(bytes)[8:24], each half scrambled by the seed: documents stand in this order, equal ones side by side
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Optional, Union

import numpy as np

from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import review_text
from training.inputs import KNOWN_FIELDS, LONGEST_LINE, SPLIT_FIELD, Block, Broken, Fields, Row

SPLITS = ("train", "valid", "test")
SPLIT_NAMES = {"train": 0, "training": 0, "valid": 1, "validation": 1, "val": 1, "dev": 1, "test": 2}
_BY_HASH = 255
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that were not UTF-8 in a csv or tsv file

# place: 128 bits, the higher half first; length in bytes; split: position in SPLITS
RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("length", "<u4"), ("split", "u1")])


@dataclasses.dataclass(frozen=True)
class Policy:
    """How rows become documents.

    Attributes:
        text: name of the text policy, see lbzoo/text/clean.py.
        fields: of jsonl rows; csv and tsv rows come with theirs already chosen.
        seed: of the order.
        shards: how many (train, valid, test) shards: the proportions of a split by hash.
    """

    text: str
    fields: Fields
    seed: int
    shards: tuple[int, int, int]


@dataclasses.dataclass
class Tally:
    """What a block, an input or a run held.

    Attributes:
        lines: rows that were not blank, the broken ones included.
        broken: rows that could not be read; first: some of them as (source, line, why).
        empty: rows whose text is empty; they are left out.
        documents, bytes: of the texts that were kept, duplicates included.
    """

    lines: int = 0
    broken: int = 0
    empty: int = 0
    documents: int = 0
    bytes: int = 0
    first: list[tuple[int, int, str]] = dataclasses.field(default_factory=list)

    SHOWN = 20

    def fault(self, source: int, line: int, count: int, reason: str) -> None:
        """Count broken rows."""
        self.lines += count
        self.broken += count
        bisect.insort(self.first, (source, line, reason))
        del self.first[self.SHOWN :]

    def add(self, other: Tally) -> None:
        """Add up; the first broken rows are remembered, in whichever order the blocks come."""
        for name in ("lines", "broken", "empty", "documents", "bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = sorted(self.first + other.first)[: self.SHOWN]


class _Fault(Exception):
    """Why a row is broken."""


def read_block(block: Block, policy: Policy) -> tuple[list[bytes], np.ndarray, Tally]:
    """(documents, RECORD for each, tally) of a block, in the order of its rows."""
    tally = Tally()
    for line, count, reason in block.broken:
        tally.fault(block.source, line, count, reason)
    texts: list[bytes] = []
    splits = bytearray()
    nothing = encode("", policy.text)
    for row in _rows(block, policy.fields):
        if len(row) == 3:
            tally.fault(block.source, *row)
            continue
        _, title, text, split = row
        document = encode(text if title is None else review_text(title, text), policy.text)
        if document == nothing:
            tally.empty += 1
            continue
        texts.append(document)
        splits.append(_BY_HASH if split is None else split)
    tally.documents, tally.bytes = len(texts), sum(map(len, texts))
    tally.lines += tally.documents + tally.empty
    return texts, _records(texts, splits, policy), tally


def _records(texts: list[bytes], splits: bytearray, policy: Policy) -> np.ndarray:
    records = np.empty(len(texts), RECORD)
    if not texts:
        return records
    digests = np.frombuffer(b"".join([hashlib.sha256(text).digest() for text in texts]), ">u8").reshape(-1, 4)
    shares, high, low = digests.T[:3].astype(np.uint64)
    seed = scrambled(np.asarray([policy.seed], np.uint64))
    records["high"], records["low"] = scrambled(high ^ seed), scrambled(low ^ seed)
    records["length"] = [len(text) for text in texts]
    chosen = np.frombuffer(bytes(splits), np.uint8)
    records["split"] = np.where(chosen == _BY_HASH, split_by_hash(shares, policy.shards), chosen)
    return records


def scrambled(values: np.ndarray) -> np.ndarray:
    """uint64 -> uint64, one to one: the mixing function of splitmix64 (Steele, Lea and Flood 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def split_by_hash(shares: np.ndarray, shards: tuple[int, int, int]) -> np.ndarray:
    """Positions in SPLITS, uint8, of the first 8 bytes of a document's hash (uint64), in proportion to `shards`."""
    borders = [2**64 * sum(shards[: i + 1]) // sum(shards) for i in range(2)]
    # a border of 2**64 has no uint64: nothing lies beyond it
    beyond = [shares >= np.uint64(border) for border in borders if border < 2**64]
    return np.sum(beyond, axis=0, dtype=np.uint8) if beyond else np.zeros(len(shares), np.uint8)


_Read = Union[tuple[int, Optional[str], str, Optional[int]], Broken]


def _rows(block: Block, fields: Fields) -> Iterator[_Read]:
    """(line, title, text, position in SPLITS or None), or what is broken, of each row that is not blank."""
    for line, row in _lines(block):
        try:
            if block.format == "txt":
                yield line, None, _unicode(row), None
            elif block.format == "jsonl":
                yield (line, *_from_json(_unicode(row), fields))
            else:
                yield (line, *_from_cells(row))
        except _Fault as fault:
            yield line, 1, str(fault)


def _lines(block: Block) -> Iterator[tuple[int, Any]]:
    if block.format == "rows":
        yield from ((row[0], row) for row in block.data)
        return
    try:
        lines: list[Any] = block.data.decode("utf-8").split("\n")
    except UnicodeDecodeError:  # the lines at fault are found one by one
        lines = block.data.split(b"\n")
    for number, line in enumerate(lines, block.line):
        line = line.strip("\r") if isinstance(line, str) else line.strip(b"\r")
        if line and not line.isspace():
            yield number, line


def _unicode(line: Union[str, bytes]) -> str:
    if len(line) > LONGEST_LINE // 4 and len(line.encode() if isinstance(line, str) else line) > LONGEST_LINE:
        raise _Fault(f"longer than {LONGEST_LINE} bytes")
    if isinstance(line, str):
        return line
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Fault(f"not UTF-8: byte 0x{line[error.start]:02x} at {error.start + 1}") from None


_scan = json.JSONDecoder().scan_once  # what json.loads does, less its checks of a line's ends


def _parsed(line: str) -> Any:
    try:
        row, end = _scan(line, 0)
        if end == len(line):
            return row
    except (StopIteration, ValueError, RecursionError):
        pass  # json.loads takes blanks around the value, or says what is wrong
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise _Fault(f"not JSON: {error.msg}, character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise _Fault(f"not JSON that can be read: {str(error)[:80]}") from None


def _from_json(line: str, fields: Fields) -> tuple[Optional[str], str, Optional[int]]:
    row = _parsed(line)
    if not isinstance(row, dict):
        raise _Fault(f"a JSON {type(row).__name__} where an object is needed")
    found = fields.find(row)
    if found is None:
        wanted = fields.text or " or ".join(text for text, _ in KNOWN_FIELDS)
        raise _Fault(f"no field {wanted}. Found: {', '.join(row)[:100]}")
    text, title = row[found[0]], None if found[1] is None else row[found[1]]
    if not isinstance(text, (str, type(None))) or not isinstance(title, (str, type(None))):
        raise _Fault(f"{' or '.join(filter(None, found))} is no string")
    return title, text or "", _split(row.get(SPLIT_FIELD)) if fields.split else None


def _from_cells(row: Row) -> tuple[Optional[str], str, Optional[int]]:
    _, title, text, split = row
    for cell in (title, text):
        if cell and not cell.isascii() and _ESCAPED.search(cell):
            raise _Fault("not UTF-8")
    return title, text, _split(split)


def _split(value: Any) -> Optional[int]:
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.strip().lower() in SPLIT_NAMES:
        return SPLIT_NAMES[value.strip().lower()]
    raise _Fault(f"{SPLIT_FIELD} is {str(value)[:40]!r}, none of {', '.join(SPLIT_NAMES)}: --split hash ignores it")
