"""The folder of token ids that BERT trains on, memory-mapped.

    index.json          how the text was prepared; of each split: documents, sentences, tokens, sha256 of its files
    vocab.txt           the word pieces
    SPLIT/tokens.bin    uint16 (int32 for a vocabulary above 65,536): every sentence's ids, one after another
    SPLIT/sentences.bin int64: where sentences begin in tokens.bin, and the end
    SPLIT/documents.bin int64: which sentence each document begins with, and their number

No sentence and no document is empty. `training.prepare_bert` writes such folders, whole or not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, Mapping

import numpy as np

from lbzoo.errors import CheckpointError, TrainingError
from lbzoo.text.vocabulary import Vocabulary, read_vocabulary
from training.shards import INDEX

VOCABULARY = "vocab.txt"
FILES = {"tokens": "tokens.bin", "sentences": "sentences.bin", "documents": "documents.bin"}


@dataclasses.dataclass(frozen=True)
class TokenShards:
    """A split of such a folder.

    Attributes:
        folder, index: where it is and what index.json holds.
        vocabulary: the word pieces.
        tokens: uint16 or int32 [tokens], memory-mapped.
        sentences: int64 [sentences + 1], memory-mapped.
        documents: int64 [documents + 1], memory-mapped.
    """

    folder: Path
    index: Mapping[str, Any]
    vocabulary: Vocabulary
    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray

    @property
    def text(self) -> str:
        """How a text is prepared for the vocabulary, a key of `lbzoo.text.vocabulary.READINGS`."""
        return self.index["text"]


def open_token_shards(folder: Path, split: str = "train") -> TokenShards:
    """Map a split.

    Raises:
        TrainingError: the folder is incomplete or damaged, or does not hold that split.
    """
    folder = Path(folder)
    try:
        index = json.loads((folder / INDEX).read_text())
        splits, dtype = index["splits"], np.dtype(index["dtype"])
        vocabulary = read_vocabulary(folder / VOCABULARY)
    except (OSError, ValueError, KeyError, TypeError, CheckpointError) as error:
        raise TrainingError(
            f"{folder} is no folder of token ids: {error}. Make one: python -m training.prepare_bert."
        ) from error
    if split not in splits:
        raise TrainingError(f"{folder} has the splits {', '.join(splits)}. Received: {split!r}.")
    kinds = {"tokens": dtype, "sentences": np.dtype(np.int64), "documents": np.dtype(np.int64)}
    sizes = {name: splits[split][name] + (name != "tokens") for name in FILES}
    arrays = {}
    for name, kind in kinds.items():
        path, size = folder / split / FILES[name], sizes[name] * kind.itemsize
        found = path.stat().st_size if path.exists() else None
        if found != size:
            raise TrainingError(f"{path} must have {size} bytes. Received: {found}. Prepare it again.")
        arrays[name] = np.memmap(path, kind, "r") if size else np.empty(0, kind)
    return TokenShards(folder, index, vocabulary, **arrays)


def dtype_for(vocabulary: Vocabulary) -> np.dtype:
    """The narrowest dtype for its ids that these folders have."""
    return np.dtype(np.uint16 if len(vocabulary) <= 1 << 16 else np.int32)


class TokenWriter:
    """Writes a split, document by document, for a `with` block; `counts` then is its entry in index.json."""

    def __init__(self, folder: Path, dtype: np.dtype) -> None:
        folder.mkdir()
        self._files = {name: open(folder / file, "wb") for name, file in FILES.items()}
        self._hashes = {name: hashlib.sha256() for name in FILES}
        self._dtype = dtype
        self.counts: dict[str, Any] = dict.fromkeys(FILES, 0)

    def __enter__(self) -> TokenWriter:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self._append("sentences", np.asarray([self.counts["tokens"]], np.int64))
            self._append("documents", np.asarray([self.counts["sentences"]], np.int64))
            self.counts["sha256"] = {FILES[name]: digest.hexdigest() for name, digest in self._hashes.items()}
        for file in self._files.values():
            file.close()

    def add(self, ids: np.ndarray, lengths: np.ndarray, sentences: np.ndarray) -> None:
        """Append documents.

        Args:
            ids: int32 [tokens] of all of them.
            lengths: tokens of each sentence, int64, none 0.
            sentences: how many of these each document has, int64, none 0.
        """
        self._append("documents", self.counts["sentences"] + np.cumsum(sentences) - sentences)
        self._append("sentences", self.counts["tokens"] + np.cumsum(lengths) - lengths)
        self._append("tokens", ids.astype(self._dtype))
        for name, array in (("tokens", ids), ("sentences", lengths), ("documents", sentences)):
            self.counts[name] += len(array)

    def _append(self, name: str, array: np.ndarray) -> None:
        data = array.tobytes()
        self._files[name].write(data)
        self._hashes[name].update(data)
