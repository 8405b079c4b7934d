"""`classifier.json` in a checkpoint folder: what its weights and its probe, the head, were fine-tuned to answer.

    format      1
    task        "classify" or "regress"
    settings    how `TextClassifier` was set
    expected    texts, or pairs of them, and what weights, text policy and head gave for them when they were saved:
                classes and probabilities, or numbers and the tolerance within which they must be met

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
from lbzoo.models.config import BertConfig
from lbzoo.text.pairs import as_inputs
from lbzoo.transfer.encoders import Encoder, encoder_for
from lbzoo.transfer.probe import Probe

FORMAT = 1
TASKS = ("classify", "regress")
TOLERANCE = 1e-3  # of a probability, or of a number in units of their spread; other processors differ by about 1e-5
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
    pairs = bool(head.meta.get("pairs"))
    texts = list(zip(TEXTS, TEXTS[::-1])) if pairs else list(TEXTS)
    answers = _answers(head, _read(encoder_for(model, head), texts))
    expected: dict[str, Any] = {"texts": texts}
    if head.link == "identity":
        spread = float(head.meta.get("label_spread") or 1.0)
        expected.update(numbers=answers[:, 0].tolist(), tolerance=TOLERANCE * spread)
    else:
        rounded = [[round(float(p), 6) for p in row] for row in answers]
        expected.update(classes=list(head.classes), probabilities=rounded)
    task = TASKS[head.link == "identity"]
    values = {"format": FORMAT, "task": task, "settings": dict(settings), "expected": expected}
    base = model.card.get("name")
    card = {key: value for key, value in model.card.items() if key not in _OF_THE_BODY}
    card.update(name=Path(folder).name, based_on=base, results=[])
    if isinstance(model.config, BertConfig):
        card["pool"] = head.pool
    made = "a number" if task == "regress" else f"one of {len(head.classes)} labels"
    card["description"] = f"{base or 'a checkpoint'} fine-tuned to answer a {'pair' if pairs else 'text'} with {made}"
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
    encoder = encoder_for(model, head)
    reads = {name: getattr(head, name) for name in encoder.reads}
    if reads != encoder.reads:
        raise CheckpointError(
            f"{info.folder / PROBE} must read what fine-tuning trains, {encoder.reads}. Received: {reads}. "
            "Get another copy."
        )
    require_expected(values, info.folder, head, lambda texts: _read(encoder, texts))
    return Saved(model, head, _parsed(values, info.folder).settings)


def require_expected(values: Any, folder: Path, head: Probe, features: Callable[[list[str]], np.ndarray]) -> None:
    """Raise CheckpointError unless the answers of now are those in what `checkpoint.load_classifier` read.

    Args:
        features: texts -> float32 [texts, features], what the head reads, computed in float32.
    """
    parsed = _parsed(values, folder)
    if list(map(repr, parsed.classes)) != list(map(repr, head.classes)):  # 1, True and 1.0 are equal, yet not the same
        raise CheckpointError(
            f"{folder} has a head for other labels than it was saved for. Expected: {parsed.classes[:10]}. "
            f"Received: {list(head.classes)[:10]}. Get another copy."
        )
    received = _answers(head, features(parsed.texts))
    if parsed.answers.shape != received.shape:
        raise CheckpointError(
            f"{folder / CLASSIFIER} must expect an answer for each text and class. "
            f"Received: shape {list(parsed.answers.shape)}, where the folder answers {list(received.shape)}."
        )
    apart = np.abs(received - parsed.answers).max(axis=1)
    worst = int(apart.argmax())
    if not apart[worst] <= parsed.tolerance:  # NaN is not
        raise CheckpointError(
            f"{folder} does not answer as it did when it was saved, so it is not used. Expected for "
            f"{str(parsed.texts[worst])[:40]!r}: {'number' if head.link == 'identity' else 'probabilities'} "
            f"{_shown(parsed.answers[worst])}. Received: {_shown(received[worst])}. "
            "Save it again from the training, or get another copy."
        )


def _answers(head: Probe, features: np.ndarray) -> np.ndarray:
    """[texts, classes] probabilities, or [texts, 1] numbers."""
    return head.predict(features)[:, None] if head.link == "identity" else head.predict_proba(features)


def _read(encoder: Encoder, texts: Sequence[Any]) -> np.ndarray:
    return encoder.read(encoder.encode(list(as_inputs(texts)))[0], len(texts))


def _as_on_disk(model: Any, dtype: str) -> Any:
    """In float32, with weights that are what `dtype` keeps of them, so that its answers are those of the folder."""
    if dtype == "float32":
        return model.in_precision("float32")
    other = copy.deepcopy(model.in_precision("float32"))
    for variable in other.named_weights().values():
        with np.errstate(over="ignore"):  # what float16 cannot hold is told when it is written
            variable.assign(variable.numpy().astype(dtype).astype(np.float32))
    return other


class _Parsed(NamedTuple):
    """What the file says: `answers` [texts, classes], or [texts, 1] of a regression, which has no classes."""

    settings: dict[str, Any]
    classes: list[Any]
    texts: list[Any]
    answers: np.ndarray
    tolerance: float


def _parsed(values: Any, folder: Path) -> _Parsed:
    fields = Fields(values, str(folder / CLASSIFIER), CheckpointError)
    fields.choice("format", [FORMAT])
    numbers = fields.choice("task", TASKS) == "regress"
    settings, expected = fields.fields("settings").values, fields.fields("expected")
    fields.finish()
    names = ("texts", "numbers") if numbers else ("texts", "probabilities", "classes")
    texts, rows, *more = ([item for item, _ in expected.items(name)] for name in names)
    tolerance = expected.number("tolerance", 0.0, np.inf) if numbers else TOLERANCE
    expected.finish()
    rows = [[number] for number in rows] if numbers else rows
    sound = all(isinstance(row, list) and all(type(p) in (int, float) for p in row) for row in rows)
    if not texts or not _are_inputs(texts) or not sound or len({*map(len, rows)}) != 1:
        raise fields.fault("expected", "must hold texts and, for each, its answer", values["expected"])
    if isinstance(texts[0], list):
        texts = [tuple(pair) for pair in texts]
    return _Parsed(settings, more[0] if more else [], texts, np.array(rows, np.float64), tolerance)


def _are_inputs(texts: list[Any]) -> bool:
    if isinstance(texts[0], list):
        return all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(t, str) for t in pair) for pair in texts
        )
    return all(isinstance(text, str) for text in texts)


def _shown(row: np.ndarray) -> str:
    return ", ".join(f"{p:.4f}" for p in row[:8]) + (" ..." if len(row) > 8 else "")
