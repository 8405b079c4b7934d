"""A file or standard input as lines of text: decompressed, decoded, cut at \\n, \\r\\n and \\r and nowhere else."""

from __future__ import annotations

import bz2
import codecs
import collections
import contextlib
import gzip
import io
import itertools
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from typing import Any, Callable

from lbzoo.errors import TableError

CHUNK = 1 << 16
STDIN = "standard input"

_BOMS = (  # utf-32 first: its little-endian mark starts with that of utf-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_COMPRESSED = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))
OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook (save the sheet as csv)"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file (save the sheet as csv)"),
    (b"%PDF-", "a PDF"),
    (b"PAR1", "a Parquet file (write it as csv or jsonl)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"\x93NUMPY", "a NumPy array"),
)
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r")) + b"\x7f"
_CONTROLS = re.compile(f"[{re.escape(_CONTROL_BYTES.decode())}]")


class _Unreadable(Exception):
    """Why the text cannot go on here; `Lines` adds the file and the line."""


class Lines:
    """Iterator of lines, each with its line end.

    Attributes:
        name: the file's name, for messages.
        number: how many lines were handed out.

    Raises:
        TableError: while iterating, with the file and the line, where bytes are not text.
    """

    def __init__(self, name: str, chunks: Iterator[str]):
        self.name = name
        self.number = 0
        self._lines = _split(chunks)
        self._ahead: collections.deque[str] = collections.deque()

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else self._pull()
        self.number += 1
        return line

    def peek(self, size: int) -> tuple[list[str], bool]:
        """The coming lines, up to about `size` characters, left in place; and whether they are all there is."""
        have = sum(map(len, self._ahead))
        while have < size:
            try:
                self._ahead.append(self._pull())
            except StopIteration:
                return list(self._ahead), True
            have += len(self._ahead[-1])
        return list(self._ahead), False

    def _pull(self) -> str:
        try:
            return next(self._lines)
        except _Unreadable as error:
            raise TableError(f"{self.name}, line {self.number + len(self._ahead) + 1}: {error}") from None


def _split(chunks: Iterator[str]) -> Iterator[str]:
    pieces: list[str] = []
    for chunk in chunks:
        if pieces and pieces[-1].endswith("\r"):  # "\r\n" may be cut between two chunks
            chunk = pieces.pop() + chunk
        if "\n" not in chunk and "\r" not in chunk:
            pieces.append(chunk)
            continue
        # newline="" cuts where the csv module does: not at U+2028, U+0085 or form feeds as str.splitlines would
        lines = io.StringIO("".join(pieces) + chunk, newline="").readlines()
        pieces = [] if lines[-1].endswith("\n") else [lines.pop()]
        yield from lines
    if pieces:
        yield "".join(pieces)


@contextlib.contextmanager
def open_lines(path: Any, encoding: str | None = None, notice: Callable[[str], None] = lambda message: None):
    """Open `path` ("-" is standard input) and give its `Lines`.

    UTF-8 with or without a mark; UTF-16 and UTF-32 with one; Windows-1252 where strict UTF-8 fails and the rest reads
    as plausible text, which `notice` is told; anything else by `encoding`. gzip, xz and bzip2 are decompressed.

    Raises:
        TableError: the file is binary, of another kind, or `encoding` is unknown.
        OSError: the file cannot be opened.
    """
    if encoding is not None:
        try:
            "".encode(encoding)
        except LookupError:
            raise TableError(f"unknown text encoding. Received: {encoding!r}. Try utf-8, utf-16 or cp1252.") from None
    with contextlib.ExitStack() as stack:
        name, raw = _open(path, stack)
        yield Lines(name, _decoded(raw, name, encoding, notice))


def _open(path: Any, stack: contextlib.ExitStack):
    if str(path) == "-":
        name, file = STDIN, sys.stdin.buffer
    else:
        name, file = str(path), stack.enter_context(open(path, "rb"))
    raw = decompressed(file, name)
    if raw is not file:
        stack.enter_context(raw)
    return name, raw


def decompressed(raw: Any, name: str) -> Any:
    """A binary file of what `raw` holds once gzip, xz or bzip2 (known by its first bytes) is undone.

    Closing it leaves a compressed `raw` open. Raises TableError where `name` ends as that of a compressed file and
    `raw` is none.
    """
    if not hasattr(raw, "peek"):
        raw = io.BufferedReader(raw)
    start = raw.peek(8)[:8]
    suffix = name[name.rfind(".") :].lower()
    by_start = [opener for magic, opener in _COMPRESSED if start.startswith(magic)]
    if by_start:
        return by_start[0](raw)
    if suffix in OPENERS and start:
        raise TableError(f"{name} is not compressed as its name says. Received: a file that starts with {start!r}.")
    return raw


def _bytes(raw) -> Iterator[bytes]:
    while True:
        try:
            chunk = raw.read(CHUNK)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise _Unreadable(f"the compressed data is damaged or cut short ({error}).") from None
        if not chunk:
            return
        yield chunk


def _decoded(raw, name: str, encoding: str | None, notice: Callable[[str], None]) -> Iterator[str]:
    chunks = _bytes(raw)
    first = next(chunks, b"")
    if encoding is None:
        for mark, found in _BOMS:
            if first.startswith(mark):
                encoding = found
                break
        else:
            _refuse_foreign(first)
    chunks = itertools.chain((first,), chunks)
    texts = _by_guess(chunks, name, notice) if encoding is None else _by_name(chunks, encoding)
    start = True
    for text in texts:
        if start and text:
            text, start = text[1:] if text[0] == "\ufeff" else text, False
        if text:
            yield text


def _refuse_foreign(first: bytes) -> None:
    for magic, what in _FOREIGN:
        if first.startswith(magic):
            raise _Unreadable(f"this is {what}, not a table of text.")
    strange = len(first) - len(first.translate(None, _CONTROL_BYTES))
    if strange >= 4 and strange > 0.1 * len(first):  # a text may hold a few
        raise _Unreadable(
            f"binary data, or UTF-16 without a byte-order mark. Received: {strange} control characters in the first "
            f"{len(first)} bytes. If it is text, name its --encoding (utf-16-le, utf-16-be)."
        )


def _by_name(chunks: Iterator[bytes], encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    final = False
    while not final:
        chunk = next(chunks, b"")
        final, state = not chunk, decoder.getstate()
        try:
            yield decoder.decode(chunk, final)
        except UnicodeError as error:
            decoder.setstate(state)
            with contextlib.suppress(UnicodeError):  # what stands before the fault, so that its line can be named
                for byte in chunk:
                    yield decoder.decode(bytes([byte]))
            reason = getattr(error, "reason", None) or error
            raise _Unreadable(f"not valid {encoding.replace('-sig', '').upper()} ({reason}).") from None


def _by_guess(chunks: Iterator[bytes], name: str, notice: Callable[[str], None]) -> Iterator[str]:
    """UTF-8; from the first byte that is not, Windows-1252, if all before it was ASCII and so is the same in both."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    ascii_so_far, final = True, False
    while not final:
        chunk = next(chunks, b"")
        final = not chunk
        waiting = decoder.getstate()[0]
        try:
            text = decoder.decode(chunk, final=final)
        except UnicodeDecodeError as error:
            data = waiting + chunk
            good = data[: error.start].decode("utf-8")
            yield good
            bad = f"byte 0x{data[error.start]:02x}"
            if not (ascii_so_far and good.isascii()):
                raise _Unreadable(
                    f"not valid UTF-8, though the text before it is. Received: {bad}. Two encodings are mixed, or the "
                    "file is damaged; mend this line, or name the --encoding."
                ) from None
            yield from _windows(data[error.start :], chunks, bad, name, notice)
            return
        ascii_so_far = ascii_so_far and text.isascii()
        yield text


def _windows(data: bytes, chunks: Iterator[bytes], bad: str, name: str, notice: Callable[[str], None]) -> Iterator[str]:
    first = True
    while data:
        try:
            text = data.decode("cp1252")
        except UnicodeDecodeError:
            text = "\0"
        foreign = sum(map(str.isalpha, text)) - len(re.findall("[A-Za-z]", text)) if first else 0
        # a Western text has few letters outside ASCII; Cyrillic, Greek or Japanese read as cp1252 has little else
        if _CONTROLS.search(text) or (foreign > 20 and foreign > 0.4 * sum(map(str.isalpha, text))):
            raise _Unreadable(
                f"neither UTF-8 nor plausible Windows-1252 text: binary data or another encoding. Received: {bad}. "
                "If it is text, name its --encoding."
            )
        if first:
            notice(f"{name} is not UTF-8 ({bad}); it is read as Windows-1252. --encoding names another.")
        first = False
        yield text
        data = next(chunks, b"")
