"""Answers about texts by a checkpoint's probe, by a fitted one, or by the checkpoint's sentiment unit.

Knows no scikit-learn, whose import takes half a second: the command line answers through this class alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lbzoo.errors import ConfigError, NotFittedError
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.states import BATCH_SIZE, PreparedModel, prepare
from lbzoo.trace import sentiment_unit
from lbzoo.transfer.answers import LinearAnswers, inputs_for
from lbzoo.transfer.labels import NEGATIVE, POSITIVE, as_label_array
from lbzoo.transfer.probe import Probe

if TYPE_CHECKING:
    from lbzoo.trace import Trace


class SentimentInference(LinearAnswers):
    """What `SentimentClassifier` does once there is something to decide by; see there.

    Args:
        model: a checkpoint's name, its folder, or a model, which is read as it is at the first call.
        batch_size: most texts that run together.
        dtype: what the model computes in, "float32" or "bfloat16".
    """

    def __init__(self, model: Any = DEFAULT_MODEL, batch_size: int = BATCH_SIZE, dtype: str = "float32") -> None:
        self.model, self.batch_size, self.dtype = model, batch_size, dtype

    def trace(self, text: str | bytes, unit: int | None = None, label: Any = None, follow: str | None = None) -> Trace:
        """The sentiment after every byte of a text of any length; see `lbzoo.trace`.

        Args:
            text: str or bytes.
            unit: follow this unit of the cell state.
            label: follow the score of this class.
            follow: "unit", the sentiment unit that the checkpoint's card names, or "score", that of the probe in use
                (positive for the second of two classes). None: the unit where the card names one, else the score.

        Returns:
            A `Trace`: (character, value) pairs with `to_terminal()` and `to_html()`.
        """
        from lbzoo.trace import trace

        if follow not in (None, "unit", "score"):
            raise ConfigError(f"follow must be 'unit', 'score' or None. Received: {follow!r}.")
        loaded = self._loaded()
        if follow is None:
            follow = "unit" if unit is not None or (label is None and loaded.unit_probe is not None) else "score"
        if follow == "unit":
            return trace(text, loaded.prepared, unit=unit)
        return trace(text, loaded.prepared, unit=unit, probe=self._decider(), label=label)

    @property
    def classes_(self) -> np.ndarray:
        """Labels in the order of `predict_proba`'s columns; none of a checkpoint that was fine-tuned for numbers."""
        return as_label_array(self._decider().classes)

    @property
    def decides_by(self) -> str:
        """ "fit", "probe" or "unit"; NotFittedError where there is none of them."""
        if hasattr(self, "probe_"):
            return "fit"
        loaded = self._loaded()
        if loaded.probe is None and loaded.unit_probe is None:
            raise NotFittedError(
                f"the checkpoint {loaded.name} has no probe and its card names no sentiment unit: it cannot classify. "
                "Call fit(texts, labels) first, or choose a checkpoint with a probe."
            )
        return "unit" if loaded.probe is None else "probe"

    @property
    def pairs(self) -> bool | None:
        """Whether it was fine-tuned on pairs of texts; None where nothing says so."""
        return self._decider().meta.get("pairs")

    @property
    def task(self) -> str:
        """ "classify", or "regress" of a checkpoint that was fine-tuned for numbers."""
        return "regress" if self._decider().link == "identity" else "classify"

    def _decider(self) -> Probe:
        by = self.decides_by
        if by == "fit":
            return self.probe_
        loaded = self._loaded()
        if by == "unit" and not loaded.warned:
            loaded.warned = True
            warnings.warn(
                f"{loaded.name} has no probe: deciding by the sign of its sentiment unit, with probabilities "
                "that nobody calibrated. fit(texts, labels) makes a probe.",
                UserWarning,
                stacklevel=3,
            )
        return loaded.probe if by == "probe" else loaded.unit_probe

    def _iter_features(self, texts: Iterable[Any], probe: Probe, window: int | None = None) -> Iterator[np.ndarray]:
        prepared = self._loaded().prepared
        units = prepared.model.config.units
        if probe.features != units:
            raise ConfigError(
                f"the probe reads {probe.features} features; the model has {units} units. Fit again with this model."
            )
        reader = prepared.reader(probe.state, probe.pool, probe.tanh)
        return reader.iter_read(inputs_for(texts, probe), self.batch_size, window)

    def _loaded(self) -> _Loaded:
        """The model and what came with it, read at the first call and again after `set_params`."""
        found = self.__dict__.get("_cache")
        if found is None or found.source is not self.model or found.dtype != self.dtype:
            found = self.__dict__["_cache"] = _Loaded(self.model, self.dtype)
        return found


class _Loaded:
    """A checkpoint ready to read texts, with its probe, or a probe made of its sentiment unit."""

    def __init__(self, source: Any, dtype: str) -> None:
        self.source, self.dtype, self.warned = source, dtype, False
        self.prepared: PreparedModel = prepare(source, dtype)
        named = isinstance(source, (str, os.PathLike))
        self.name = os.fspath(source) if named else str(self.prepared.model.card.get("name") or "given")
        self.probe: Probe | None = None
        if self.prepared.folder is not None:
            from lbzoo.checkpoint import load_probe

            self.probe = load_probe(self.prepared.folder)
            self._require_expected_answers()
        unit, polarity = sentiment_unit(self.prepared.model.card, self.prepared.model.config.units)
        self.unit_probe = None
        if unit is not None:
            coef = np.zeros((1, self.prepared.model.config.units), np.float32)
            coef[0, unit] = polarity
            self.unit_probe = Probe(coef, np.zeros(1, np.float32), [NEGATIVE, POSITIVE])

    def _require_expected_answers(self) -> None:
        """A fine-tuned checkpoint that answers otherwise than when it was saved decides about nothing."""
        from lbzoo.checkpoint import load_classifier

        values, probe = load_classifier(self.prepared.folder), self.probe
        if values is None or probe is None:
            return
        from lbzoo.transfer.classifier_file import require_expected

        exact = self.prepared if self.dtype == "float32" else PreparedModel(self.prepared.model)
        reader = exact.reader(probe.state, probe.pool, probe.tanh)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that made-up texts are cut is nobody's concern
            require_expected(
                values, self.prepared.folder, probe, lambda texts: np.concatenate(list(reader.iter_read(texts)))
            )
