"""Held-out texts for figures during a run: of the review sets, or of the split "valid" that the shards have.

Of the review sets these are Amazon valid, SST dev and the part of IMDB train that is never trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import POSITIVE, read_task
from training.shards import open_shards
from training.sources import amazon_text, imdb_split


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Texts to read on, and by set name (texts, is positive) to judge."""

    characters: list[bytes]
    labelled: dict[str, tuple[list[bytes], list[bool]]]


CHARACTERS = 1 << 19  # what bits per character are measured on
FEWEST = 1 << 12  # less says nothing


def held_out(data: Path, imdb_step: int = 2, amazon_rows: int = 1000, characters: int = CHARACTERS) -> HeldOut:
    """Read the first rows of Amazon and every `imdb_step`-th of IMDB: enough to see a run's way, quick to judge."""
    sst = read_task("sst", data / "sst2_sentence", "dev")
    amazon = [part[:amazon_rows] for part in read_task("amazon", data / "amazon", "valid")]
    imdb = imdb_split(data)[1][::imdb_step]  # that file is sorted by label
    labelled = {name: _encoded(*rows) for name, rows in {"sst": sst, "amazon": amazon}.items()}
    labelled["imdb"] = [d.text for d in imdb], [d.score > 0 for d in imdb]
    return HeldOut(_first((document.text for document in amazon_text(data, "valid")), characters), labelled)


def held_out_shards(folder: Path, characters: int = CHARACTERS) -> Optional[HeldOut]:
    """The first texts of the split "valid" of a folder of shards; None where it has none, or too little."""
    if not (folder / "valid").is_dir():
        return None
    texts = _first(open_shards(folder, "valid").documents(), characters)
    return HeldOut(texts, {}) if sum(map(len, texts)) >= FEWEST else None


def _first(texts: Iterable[bytes], characters: int) -> list[bytes]:
    """As many as hold `characters` bytes."""
    taken, total = [], 0
    for text in texts:
        taken.append(text)
        total += len(text)
        if total >= characters:
            break
    return taken


def _encoded(texts: list[str], labels: list[str]) -> tuple[list[bytes], list[bool]]:
    return [encode(text, "reviews") for text in texts], [label == POSITIVE for label in labels]
