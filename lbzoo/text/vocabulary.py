"""A WordPiece vocabulary: a text file whose row is a piece's id, read as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from lbzoo.errors import CheckpointError

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# what "text" in a checkpoint's config.json says of a BERT: (lower case and no accents?, the text policy before that)
READINGS: Mapping[str, tuple[bool, Optional[str]]] = {
    "uncased": (True, None),
    "cased": (False, None),
    "reviews-uncased": (True, "reviews"),
    "reviews-cased": (False, "reviews"),
}


class Vocabulary:
    """Pieces in the order of their ids.

    A row that stands twice keeps both ids, and the later one is used, as in Google's loader. A blank row, or one with
    white space in it, keeps its id and never matches.

    Attributes:
        pieces: every row; those that continue a word begin with "##".
        ids: piece -> id.
        pad, unk, cls, sep, mask: ids of the special tokens.

    Raises:
        CheckpointError: a special token is missing.
    """

    def __init__(self, pieces: Sequence[str], name: str = "the vocabulary") -> None:
        self.pieces = tuple(pieces)
        self.ids = {piece: row for row, piece in enumerate(self.pieces)}
        missing = [token for token in SPECIAL if token not in self.ids]
        if missing:
            first = ", ".join(map(repr, self.pieces[:5])) or "nothing"
            raise CheckpointError(
                f"{name} lacks {', '.join(missing)}. Received: {len(self.pieces)} rows, first {first}. "
                "A BERT vocabulary has one piece a row, the special tokens among them."
            )
        self.pad, self.unk, self.cls, self.sep, self.mask = (self.ids[token] for token in SPECIAL)

    def __len__(self) -> int:
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    def to_bytes(self) -> bytes:
        """The file: UTF-8, a row each, LF.

        Raises:
            CheckpointError: a piece that would not be read back, because of a line end in it.
        """
        for row, piece in enumerate(self.pieces):
            if "\n" in piece or piece.endswith("\r"):
                raise CheckpointError(f"row {row} of a vocabulary cannot hold a line end. Received: {piece!r}.")
        return "".join(f"{piece}\n" for piece in self.pieces).encode("utf-8")


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a `vocab.txt`.

    A row ends with LF or CRLF and with nothing else (U+2028, NEL and their like are characters of a piece); whatever
    else it holds, blanks included, is the piece. A byte order mark before the first row is left out.

    Raises:
        CheckpointError: the file cannot be read, is no UTF-8, or lacks a special token.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CheckpointError(f"the vocabulary {path} cannot be read. Received: {error}.") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"the vocabulary {path} is no UTF-8 text. Received: {error}.") from None
    rows = text.split("\n")
    if not rows[-1]:
        rows.pop()  # what follows the last line end is no row
    return Vocabulary([row[:-1] if row.endswith("\r") else row for row in rows], f"the vocabulary {path}")
