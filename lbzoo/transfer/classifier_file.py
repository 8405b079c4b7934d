"""`classifier.json` in a checkpoint folder: what its weights and its probe, the head, were fine-tuned to answer.

    format      1
    task        "classify"
    settings    how `TextClassifier` was set
    expected    classes, texts, and the probabilities that weights, text policy and head gave when they were saved

The texts are made up and the same in every folder, so that nobody's data is in one. Whoever loads the folder to answer
by it asks for these answers first: weights read into the wrong place, another text policy, labels in another order or
an arithmetic that differs are refused before they decide about anything. Nothing in the file is executed.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

from lbzoo import checkpoint
from lbzoo.errors import CheckpointError
from lbzoo.fields import Fields
from lbzoo.folder import CLASSIFIER, PROBE
from lbzoo.transfer.encoders import Encoder, encoder_of
from lbzoo.transfer.probe import Probe

FORMAT = 1
TASKS = ("classify",)
TOLERANCE = 1e-3  # of a probability; other processors differ by about 1e-5
TEXTS = (  # what text policies differ in stands at the end, where no model has forgotten it yet
    "",
    "It arrived on time and does what it should.",
    "Not what I had hoped for. Never again!<br />",
    "naïve café, Größe, 日本語 &amp; 😀 \x93quoted\x94",
    "\tdouble   spaces\r\nand a second line\r\n",
    "And so it goes on and on. " * 12,
)
_OF_THE_BODY = ("results", "baselines", "sentiment_unit", "polarity", "probe", "name")  # no longer true of new weights


class Saved(NamedTuple):
    """What a folder holds: model, head, and the settings, JSON values by the names of `TextClassifier`'s parameters."""

    model: Any
    head: Probe
    settings: dict[str, Any]


def save(folder: str | os.PathLike, model: Any, head: Probe, settings: Mapping[str, Any], dtype: str) -> Path:
    """Write a checkpoint folder; see `lbzoo.checkpoint.save` for arguments and errors."""
    model = _as_on_disk(model, dtype)
    answers = head.predict_proba(_read(encoder_of(model), TEXTS))
    values = {
        "format": FORMAT,
        "task": TASKS[0],
        "settings": dict(settings),
        "expected": {
            "classes": list(head.classes),
            "texts": list(TEXTS),
            "probabilities": [[round(float(p), 6) for p in row] for row in answers],
        },
    }
    base = model.card.get("name")
    card = {key: value for key, value in model.card.items() if key not in _OF_THE_BODY}
    card.update(name=Path(folder).name, based_on=base, results=[])
    card["description"] = f"{base or 'a checkpoint'} fine-tuned to tell {len(head.classes)} labels apart"
    return checkpoint.save(model, folder, card=card, probe=head, dtype=dtype, classifier=values)


def load(folder: str | os.PathLike) -> Saved:
    """Read what `save` wrote, every file verified and the expected answers checked.

    Raises:
        CheckpointError: see `lbzoo.checkpoint.load`; also a folder without `classifier.json`, or other answers.
    """
    info = checkpoint.verify(folder)
    values, head = checkpoint.load_classifier(info), checkpoint.load_probe(info)
    if values is None or head is None:
        raise CheckpointError(
            f"{info.folder} was not written by TextClassifier.save: it has no {CLASSIFIER}. Use "
            "SentimentClassifier(folder) or FeatureExtractor(folder)."
        )
    model = checkpoint.load(info)
    encoder = encoder_of(model)
    reads = {name: getattr(head, name) for name in encoder.reads}
    if reads != encoder.reads:
        raise CheckpointError(
            f"{info.folder / PROBE} must read what fine-tuning trains, {encoder.reads}. Received: {reads}. "
            "Get another copy."
        )
    require_expected(values, info.folder, head, lambda texts: _read(encoder, texts))
    return Saved(model, head, _parsed(values, info.folder)[0])


def require_expected(values: Any, folder: Path, head: Probe, features: Callable[[list[str]], np.ndarray]) -> None:
    """Raise CheckpointError unless the answers of now are those in what `checkpoint.load_classifier` read.

    Args:
        features: texts -> float32 [texts, features], what the head reads, computed in float32.
    """
    _, classes, texts, expected = _parsed(values, folder)
    if list(map(repr, classes)) != list(map(repr, head.classes)):  # 1, True and 1.0 are equal, yet not the same
        raise CheckpointError(
            f"{folder} has a head for other labels than it was saved for. Expected: {classes[:10]}. "
            f"Received: {list(head.classes)[:10]}. Get another copy."
        )
    received = head.predict_proba(features(texts))
    if expected.shape != received.shape:
        raise CheckpointError(
            f"{folder / CLASSIFIER} must expect a probability for each text and class. "
            f"Received: shape {list(expected.shape)}, where the folder answers {list(received.shape)}."
        )
    apart = np.abs(received - expected).max(axis=1)
    worst = int(apart.argmax())
    if not apart[worst] <= TOLERANCE:  # NaN is not
        raise CheckpointError(
            f"{folder} does not answer as it did when it was saved, so it is not used. Expected for "
            f"{texts[worst][:40]!r}: probabilities {_shown(expected[worst])}. Received: {_shown(received[worst])}. "
            "Save it again from the training, or get another copy."
        )


def _read(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    return encoder.read([encoder.encode(text) for text in texts], len(texts))


def _as_on_disk(model: Any, dtype: str) -> Any:
    """In float32, with weights that are what `dtype` keeps of them, so that its answers are those of the folder."""
    if dtype == "float32":
        return model.in_precision("float32")
    other = copy.deepcopy(model.in_precision("float32"))
    for variable in other.named_weights().values():
        with np.errstate(over="ignore"):  # what float16 cannot hold is told when it is written
            variable.assign(variable.numpy().astype(dtype).astype(np.float32))
    return other


def _parsed(values: Any, folder: Path) -> tuple[dict[str, Any], list[Any], list[str], np.ndarray]:
    """(settings, classes, texts, probabilities [texts, classes])."""
    fields = Fields(values, str(folder / CLASSIFIER), CheckpointError)
    fields.choice("format", [FORMAT])
    fields.choice("task", TASKS)
    settings, expected = fields.fields("settings").values, fields.fields("expected")
    fields.finish()
    lists = [[item for item, _ in expected.items(name)] for name in ("classes", "texts", "probabilities")]
    classes, texts, rows = lists
    expected.finish()
    numbers = all(isinstance(row, list) and all(type(p) in (int, float) for p in row) for row in rows)
    if not texts or not all(isinstance(text, str) for text in texts) or not numbers or len({*map(len, rows)}) != 1:
        raise fields.fault("expected", "must hold texts and, for each, its probabilities", values["expected"])
    return settings, classes, texts, np.array(rows, np.float64)


def _shown(row: np.ndarray) -> str:
    return ", ".join(f"{p:.4f}" for p in row[:8]) + (" ..." if len(row) > 8 else "")
