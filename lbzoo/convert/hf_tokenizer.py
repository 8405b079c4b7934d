"""The tokenizer files of a Hugging Face BERT <-> how a text is prepared, and the vocabulary.

`vocab.txt`, or where it is missing the vocabulary inside `tokenizer.json` (all that transformers 5 writes), and the
options in `tokenizer_config.json` and `tokenizer.json`. An option that Google's tokenizer does not have is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lbzoo.errors import CheckpointError
from lbzoo.files import brief, parse_json
from lbzoo.text.vocabulary import READINGS, SPECIAL, Vocabulary, read_vocabulary

VOCABULARY, OPTIONS, WHOLE = ("vocab.txt", "tokenizer_config.json", "tokenizer.json")
_CLASSES = ("BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
_MAX_WHOLE = 64 << 20  # bytes of tokenizer.json


def read_pieces(folder: Path) -> Vocabulary | None:
    """The vocabulary of a folder, or None where it has no tokenizer at all.

    Raises:
        CheckpointError: it cannot be read, or it is no WordPiece vocabulary.
    """
    if (folder / VOCABULARY).is_file():
        return read_vocabulary(folder / VOCABULARY)
    if not (folder / WHOLE).is_file():
        return None
    model = _whole(folder).get("model")
    found = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{folder / WHOLE} must hold a WordPiece vocabulary where there is no {VOCABULARY}. Received: "
            f"{brief(model.get('type') if isinstance(model, dict) else model)}."
        )
    for token in _whole(folder).get("added_tokens") or ():
        if isinstance(token, dict):
            found.setdefault(token.get("content"), token.get("id"))
    rows = sorted((number, piece) for piece, number in found.items() if type(number) is int and isinstance(piece, str))
    if [number for number, _ in rows] != list(range(len(found))):
        raise CheckpointError(f"{folder / WHOLE}: the vocabulary must number its pieces 0, 1, ... Received: gaps.")
    return Vocabulary([piece for _, piece in rows], f"the vocabulary of {folder / WHOLE}")


def read_text_form(folder: Path) -> str:
    """ "uncased" or "cased": what the tokenizer's files say, and where they say nothing, what the vocabulary shows.

    Raises:
        CheckpointError: an option that cannot be honoured, or another tokenizer than WordPiece.
    """
    options, where = _object(folder / OPTIONS, 1 << 20), str(folder / OPTIONS)
    kind = options.get("tokenizer_class")
    if kind is not None and kind not in _CLASSES:
        raise CheckpointError(
            f"{where}: tokenizer_class must be one of {', '.join(_CLASSES)}. Received: {brief(kind)}."
        )
    lower = options.get("do_lower_case")
    if lower is None:
        normalizer = _whole(folder).get("normalizer") or {}
        lower = normalizer.get("lowercase") if normalizer.get("type") == "BertNormalizer" else None
    if lower is None:
        pieces = read_pieces(folder)
        lower = pieces is None or shows_lower_case(pieces)
    accents = options.get("strip_accents")
    for name, value, allowed in (
        ("do_lower_case", lower, (True, False)),
        ("strip_accents", accents, (None, lower)),
        ("tokenize_chinese_chars", options.get("tokenize_chinese_chars"), (None, True)),
        ("do_basic_tokenize", options.get("do_basic_tokenize"), (None, True)),
    ):
        if value not in allowed or isinstance(value, int) and not isinstance(value, bool):
            raise CheckpointError(
                f"{where}: {name} must be {allowed[-1]}: lbzoo has no other form. Received: {brief(value)}."
            )
    return "uncased" if lower else "cased"


def shows_lower_case(vocabulary: Vocabulary) -> bool:
    """Whether no piece has an upper-case letter, special tokens apart."""
    return all(piece == piece.lower() for piece in vocabulary.pieces if not piece.startswith("["))


def write_tokenizer(folder: Path, vocabulary: Vocabulary, text: str, max_length: int) -> dict[str, Any]:
    """Write `vocab.txt` and give the values of `tokenizer_config.json`."""
    (folder / VOCABULARY).write_bytes(vocabulary.to_bytes())
    tokens = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL))
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": READINGS[text][0],
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        **tokens,
    }


def _whole(folder: Path) -> dict[str, Any]:
    return _object(folder / WHOLE, _MAX_WHOLE)


def _object(path: Path, most: int) -> dict[str, Any]:
    """A JSON object; an empty one where there is no file."""
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > most:
            raise ValueError(f"it has more than {most} bytes")
        values = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Received: {path.name}.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must be an object. Received: {brief(values)}.")
    return values
