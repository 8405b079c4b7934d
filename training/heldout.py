"""Held-out figures during a run: Amazon valid, SST dev and the part of IMDB train that is never trained on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import POSITIVE, read_task
from training.sources import amazon_text, imdb_split


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Texts to read on, and by set name (texts, is positive) to judge."""

    characters: list[bytes]
    labelled: dict[str, tuple[list[bytes], list[bool]]]


def held_out(data: Path, imdb_step: int = 2, amazon_rows: int = 1000, characters: int = 1 << 19) -> HeldOut:
    """Read the first rows of Amazon and every `imdb_step`-th of IMDB: enough to see a run's way, quick to judge."""
    sst = read_task("sst", data / "sst2_sentence", "dev")
    amazon = [part[:amazon_rows] for part in read_task("amazon", data / "amazon", "valid")]
    imdb = imdb_split(data)[1][::imdb_step]  # that file is sorted by label
    labelled = {name: _encoded(*rows) for name, rows in {"sst": sst, "amazon": amazon}.items()}
    labelled["imdb"] = [d.text for d in imdb], [d.score > 0 for d in imdb]
    texts, total = [], 0
    for document in amazon_text(data, "valid"):
        texts.append(document.text)
        total += len(document.text)
        if total >= characters:
            break
    return HeldOut(texts, labelled)


def _encoded(texts: list[str], labels: list[str]) -> tuple[list[bytes], list[bool]]:
    return [encode(text, "reviews") for text in texts], [label == POSITIVE for label in labels]
