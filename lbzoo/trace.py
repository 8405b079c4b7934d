"""A unit of the model, or a probe's score, after every byte of a text of any length, and pictures of it.

A trace speaks of the bytes that the model reads. For a `str` these are not the text as given: the checkpoint's policy
strips it, unescapes entities and puts its own newline and spaces around it (`lbzoo.text.clean.encode`), so spans and
positions refer to the cleaned text, `Trace.data`. `bytes` are read as they are.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import os
import re
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lbzoo.errors import CheckpointError, ConfigError, NotFittedError
from lbzoo.states import check_options, prepare
from lbzoo.text.clean import encode

_CHUNK = 512
_LEVELS = 12  # shades of a colour in HTML
_ORANGE, _BLUE = (240, 120, 20), (70, 150, 245)  # told apart by colour-blind readers too


class Span(NamedTuple):
    """A character (with U+FFFD for bytes that are not UTF-8) and the value after its last byte."""

    text: str
    value: float


@dataclasses.dataclass(frozen=True, eq=False)
class Trace(Sequence):
    """What `trace` returns: a sequence of `Span`, one per character.

    Attributes:
        data: the bytes that the model read.
        values: float32 [len(data)], the value after each byte.
        name: what the value is, in words.
        polarity: 1 where larger values speak for the positive label, -1 where smaller ones do; pictures follow it.
    """

    data: bytes
    values: np.ndarray
    name: str
    polarity: int = 1

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index):
        return self.spans[index]

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    @functools.cached_property
    def spans(self) -> list[Span]:
        """Characters with their values; the bytes of one character are merged."""
        # surrogateescape makes exactly one character of each byte that is not part of valid UTF-8
        text = self.data.decode("utf-8", "surrogateescape")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        stray = (codes >= 0xD800) & (codes < 0xE000)
        lengths = 1 + ((codes >= 0x80) & ~stray) + ((codes >= 0x800) & ~stray) + (codes >= 0x10000)
        values = self.values[np.cumsum(lengths) - 1].tolist() if len(codes) else []
        return [Span("\ufffd" if s else c, v) for c, v, s in zip(text, values, stray.tolist())]

    def words(self) -> list[Span]:
        """Stretches of non-space characters, each with the value after its last byte."""
        spans = self.spans
        text = "".join(span.text for span in spans)
        return [Span(match[0], spans[match.end() - 1].value) for match in re.finditer(r"\S+", text)]

    def to_terminal(self, colour: bool | None = None, scale: float | None = None, stream: Any = None) -> str:
        """The text with a coloured background (ANSI, 256 colours): blue where positive, orange where negative.

        Args:
            colour: True or False; None: only if `stream` is a terminal and NO_COLOR is not set. Without colour every
                word is followed by its value: `loved[+0.31]`.
            scale: the value of full colour; None takes the largest of the trace.
            stream: where it will be printed; None means standard output.

        Returns:
            The string, without control characters of the text's own and without a newline at its end.
        """
        if colour is None:
            stream = sys.stdout if stream is None else stream
            colour = bool(getattr(stream, "isatty", lambda: False)()) and not os.environ.get("NO_COLOR")
        if not colour:
            return " ".join(f"{''.join(map(_shown, word))}[{value:+.2f}]" for word, value in self.words())
        parts = []
        for text, level, _ in self._runs(5, scale):
            s = abs(level)
            r, g, b = (5 - round(0.8 * s), 5 - round(0.4 * s), 5) if level > 0 else (5, 5 - round(0.6 * s), 5 - s)
            # colour is switched off before a line ends, or it would run to the edge of the window
            start = f"\x1b[38;5;16;48;5;{16 + 36 * r + 6 * g + b}m"
            parts += [start + line + "\x1b[0m" if line else "" for line in text.split("\n")][:1]
            parts += ["\n" + (start + line + "\x1b[0m" if line else "") for line in text.split("\n")[1:]]
        return "".join(parts)

    def to_html(self, title: str | None = None, scale: float | None = None) -> str:
        """One self-contained page, everything escaped: the coloured text, values as tool tips. See `to_terminal`."""
        parts = []
        for text, level, value in self._runs(_LEVELS, scale):
            share = abs(level) / _LEVELS
            red, green, blue = (round(255 + share * (c - 255)) for c in (_BLUE if level > 0 else _ORANGE))
            style = f"background:#{red:02x}{green:02x}{blue:02x}"
            parts.append(f'<span style="{style}" title="{value:+.4f}">{html.escape(text)}</span>')
        title = html.escape("".join(map(_shown, self.name if title is None else title)))
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>'
            "body{background:#fff;color:#000;font:16px/1.7 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
            "p{white-space:pre-wrap;overflow-wrap:anywhere}</style></head>\n"
            f"<body><h1>{title}</h1>\n<p>{''.join(parts)}</p>\n"
            f"<p>Blue: positive; orange: negative. Full colour: {self._scale(scale):.3g}.</p></body></html>\n"
        )

    def _scale(self, scale: float | None) -> float:
        if scale is None:
            scale = float(np.abs(self.values).max(initial=0)) or 1.0
        if not (np.isfinite(scale) and scale > 0):
            raise ConfigError(f"scale must be a positive number. Received: {scale!r}.")
        return float(scale)

    def _runs(self, levels: int, scale: float | None) -> Iterator[tuple[str, int, float]]:
        """(printable text, -levels..levels, last value) of neighbours of one shade, without outer white space."""
        spans, scale = self.spans, self._scale(scale)
        inked = [i for i, span in enumerate(spans) if not span.text.isspace()]
        spans = spans[inked[0] : inked[-1] + 1] if inked else []
        values = np.array([span.value for span in spans], np.float64)
        shades = np.rint(np.clip(self.polarity * values / scale, -1, 1) * levels).astype(int)
        starts = [0, *(np.flatnonzero(np.diff(shades)) + 1).tolist(), len(spans)] if len(spans) else []
        for start, stop in zip(starts, starts[1:]):
            text = "".join(_shown(span.text) for span in spans[start:stop])
            yield text, int(shades[start]), spans[stop - 1].value


def trace(
    text: str | bytes,
    model: Any,
    unit: int | None = None,
    probe: Any = None,
    label: Any = None,
    state: str = "cell",
) -> Trace:
    """Follow one number through a text.

    Args:
        text: str (cleaned by the checkpoint's policy) or bytes, of any length.
        model: a checkpoint's name or folder, a model, or a `lbzoo.states.PreparedModel`.
        unit: the unit to follow. None, and no probe: the sentiment unit that the checkpoint's card names.
        probe: follow the score of this `Probe` instead, as if the text ended after each byte.
        label: the class whose score is followed. By default the second of two classes; of more, the one that wins.
        state: "cell" or "hidden", where the unit is read; a probe knows its own.

    Returns:
        The Trace.

    Raises:
        TextError: not a str or bytes.
        ConfigError: a unit that the model does not have, both unit and probe, a label that the probe does not know.
        NotFittedError: neither unit nor probe is given and the card names no unit.
    """
    if unit is not None and probe is not None:
        raise ConfigError(f"a trace follows a unit or a probe's score, not both. Received: unit={unit!r} and a probe.")
    check_options(state=state)
    model = prepare(model)
    if model.architecture != "mlstm":
        raise ConfigError(
            f"only an mLSTM has a state after every byte. Received: a model of kind {model.architecture}."
        )
    card, units = model.model.card, model.model.config.units
    data = encode(text, model.model.text)
    if probe is not None:
        if probe.features != units:
            raise ConfigError(f"the probe reads {probe.features} features; the model has {units} units.")
        scores = _probe_scores(_states(model, data, probe.state), probe)
        return _score_trace(data, scores, probe, label)
    named, polarity = sentiment_unit(card, units)
    if unit is None and named is None:
        raise NotFittedError("the checkpoint's card names no sentiment unit. Give unit=..., or a probe to follow.")
    unit = named if unit is None else unit
    if isinstance(unit, bool) or not isinstance(unit, (int, np.integer)) or not 0 <= unit < units:
        raise ConfigError(f"unit must be an integer from 0 to {units - 1}. Received: {unit!r}.")
    values = [states[:, unit] for states in _states(model, data, state)]
    values = np.concatenate([np.zeros(0, np.float32), *values])
    return Trace(
        data, values, f"unit {unit} of the {state} state", polarity if unit == named and state == "cell" else 1
    )


def sentiment_unit(card: Any, units: int) -> tuple[int | None, int]:
    """(unit, polarity) as a checkpoint's card states them; (None, 1) where it names no unit.

    Raises:
        CheckpointError: a unit that a model of so many units does not have, or a polarity other than 1 and -1.
    """
    unit, polarity = (card or {}).get("sentiment_unit"), (card or {}).get("polarity")
    if unit is None:
        return None, 1
    polarity = 1 if polarity is None else polarity
    whole = type(unit) is int and type(polarity) is int
    if not whole or not 0 <= unit < units or polarity not in (1, -1):
        raise CheckpointError(
            f"the card's sentiment_unit must be 0 to {units - 1} and its polarity 1 or -1. "
            f"Received: {unit!r} and {polarity!r}."
        )
    return unit, polarity


_compiled: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _states(prepared: Any, data: bytes, state: str) -> Iterator[np.ndarray]:
    """States after every byte, float32 [bytes, units], chunk by chunk."""
    model = prepared.model
    step = _compiled.setdefault(prepared, {}).get(state)
    if step is None:
        step = _compiled[prepared][state] = _compile(model, state)
    ids = np.frombuffer(data, np.uint8).astype(np.int32)[None]
    carried = model.initial_state(1)
    for at in range(0, len(data), _CHUNK):
        states, carried = step(ids[:, at : at + _CHUNK], *carried)
        yield states.numpy()[0]


def _compile(model: Any, state: str) -> Any:
    import tensorflow as tf

    def step(ids, c, h):
        return model.run(ids, state=(c, h), collect=state)

    row = tf.TensorSpec([1, model.config.units], tf.float32)
    return tf.function(step, input_signature=[tf.TensorSpec([1, None], tf.int32), row, row])


def _probe_scores(chunks: Iterator[np.ndarray], probe: Any) -> np.ndarray:
    """The probe's scores on the text so far, float32 [bytes] or [bytes, classes]."""
    scores, seen, carried = [], 0, None
    for states in chunks:
        states = np.tanh(states) if probe.tanh else states
        if probe.pool == "mean":
            sums = np.cumsum(states, axis=0, dtype=np.float64) + (0 if carried is None else carried)
            carried, count = sums[-1], np.arange(seen + 1, seen + len(states) + 1)[:, None]
            states = sums / count
        elif probe.pool == "max":
            states = np.maximum.accumulate(states if carried is None else np.maximum(states, carried), axis=0)
            carried = states[-1]
        seen += len(states)
        scores.append(probe.decision_function(states))
    shape = (0,) if len(probe.classes) == 2 else (0, len(probe.classes))
    return np.concatenate([np.zeros(shape, np.float32), *scores])


def _score_trace(data: bytes, scores: np.ndarray, probe: Any, label: Any) -> Trace:
    if label is None:
        two = scores.ndim == 1
        label = probe.classes[1] if two else probe.classes[int(scores[-1].argmax()) if len(scores) else 0]
    if label not in probe.classes:
        raise ConfigError(f"the probe does not know this label. Received: {label!r}. Known: {probe.classes!r}.")
    place = list(probe.classes).index(label)
    values = scores[:, place] if scores.ndim == 2 else (scores if place else -scores)
    return Trace(data, values, f"score of {label!r}")


def _shown(character: str) -> str:
    """A character that neither moves the cursor nor starts an escape sequence."""
    if character.isprintable() or character in "\n\u200c\u200d":
        return character
    if character.isspace():
        return " "
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
