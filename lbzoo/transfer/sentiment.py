"""`SentimentClassifier`: texts to "positive" or "negative", or to labels of your own, as scikit-learn has it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from lbzoo.errors import ConfigError
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.states import BATCH_SIZE
from lbzoo.transfer.inference import SentimentInference
from lbzoo.transfer.labels import as_label_array, texts_and_labels
from lbzoo.transfer.probe import SEED, fit_probe, hold_out

HOLD_OUT = 0.1  # of each class, where no dev data is given


class SentimentClassifier(SentimentInference, ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier of texts on a frozen checkpoint.

    It decides by the first of these that there is; `decides_by` says which:

    - "fit": the probe that `fit` made;
    - "probe": the probe that came with the checkpoint;
    - "unit": the sentiment unit that the checkpoint's card names: positive where polarity * value > 0. Its probability
      is the logistic of polarity * value, a monotone figure that nobody calibrated; a warning says so once.

    Args:
        model: a checkpoint's name, its folder, or a model.
        state, pool, tanh: the features that `fit` builds on, see `FeatureExtractor`; a checkpoint's own probe reads
            those that it was made for.
        batch_size: most texts that run together.
        dtype: what the model computes in, "float32" or "bfloat16".

    Attributes:
        classes_: labels in the order of `predict_proba`'s columns, as an array.
        probe_: the Probe of `fit`; only after `fit`.
    """

    def __init__(
        self,
        model: Any = DEFAULT_MODEL,
        state: str = "cell",
        pool: str | None = None,
        tanh: bool = False,
        batch_size: int = BATCH_SIZE,
        dtype: str = "float32",
    ) -> None:
        self.model = model
        self.state = state
        self.pool = pool
        self.tanh = tanh
        self.batch_size = batch_size
        self.dtype = dtype

    def fit(
        self,
        texts: Iterable[str | bytes],
        labels: Iterable[Any],
        dev_texts: Iterable[str | bytes] | None = None,
        dev_labels: Iterable[Any] | None = None,
    ) -> SentimentClassifier:
        """Fit a new probe on the checkpoint's features; the checkpoint itself does not change.

        With dev data this is OpenAI's protocol (see `lbzoo.transfer.probe`). Without, a tenth of each class is held out
        (`hold_out` with seed 42) to choose C, and the final weights are then fitted on all texts.

        Args:
            texts: one or more of each class, two or more without dev data.
            labels: one for each text: all str, all int, all bool or all whole floats; any number of classes.
            dev_texts, dev_labels: what C is chosen on.

        Returns:
            self, with `probe_`.

        Raises:
            TextError: something that is not a text or not a label; names its position.
            ConfigError: lengths that differ, one class only, too few texts.
        """
        if (dev_texts is None) != (dev_labels is None):
            raise ConfigError("dev_texts and dev_labels come together. Received: one of them.")
        texts, names = texts_and_labels(texts, labels)
        dev = None if dev_texts is None else texts_and_labels(dev_texts, dev_labels, "dev ")
        kept, held = hold_out(names, HOLD_OUT, SEED)
        if len(set(names)) < 2 or (dev is None and not len(held)):
            raise ConfigError(
                "fit needs two classes and, without dev data, two texts of one class at least. "
                f"Received: {len(names)} texts of {len(set(names))} classes."
            )
        reader = self._loaded().prepared.reader(self.state, self.pool, self.tanh)
        where = {"state": self.state, "pool": reader.pool, "tanh": bool(self.tanh)}
        features = self._read(reader, texts)
        if dev is not None:
            self.probe_ = fit_probe(features, names, self._read(reader, dev[0]), dev[1], **where)
        else:
            target = as_label_array(names)
            meta = {"held_out": {"fraction": HOLD_OUT, "seed": SEED}}
            self.probe_ = fit_probe(
                features[kept], target[kept], features[held], target[held], **where, refit="all", meta=meta
            )
        if not self.probe_.nonzero:
            warnings.warn(
                f"the probe has no weight that is not zero: {len(names)} texts did not suffice to tell classes apart, "
                "and every text gets the same label. Give more texts.",
                UserWarning,
                stacklevel=2,
            )
        return self

    def save(self, folder: str | os.PathLike, dtype: str = "float32") -> Path:
        """Write the checkpoint with the probe in use; `SentimentClassifier(folder)` reads it back.

        After `fit` the card takes the folder's name, says what it is based on, and drops the accuracies, which were
        those of another probe.

        Args:
            folder: where to.
            dtype: of the weights on disk, "float32" or "float16".

        Raises:
            CheckpointError: see `lbzoo.checkpoint.save`.
        """
        from lbzoo import checkpoint

        loaded = self._loaded()
        card = dict(loaded.prepared.model.card)
        if hasattr(self, "probe_"):
            results = card.get("results")
            kept = [r for r in results if isinstance(r, dict) and r.get("metric") == "bpc"] if results else []
            card.update(name=Path(folder).name, based_on=card.get("name"), results=kept)
            card["probe"] = "fitted by SentimentClassifier.fit; its figures are in probe.json under meta"
        probe = getattr(self, "probe_", loaded.probe)
        return checkpoint.save(loaded.prepared.model, folder, card=card, probe=probe, dtype=dtype)

    def _read(self, reader: Any, texts: list[str | bytes]) -> np.ndarray:
        return np.concatenate(list(reader.iter_read(texts, self.batch_size)))

    def __getstate__(self) -> dict[str, Any]:
        """Without weights: a copy in another process loads the checkpoint by its name again."""
        if not isinstance(self.model, (str, os.PathLike)):
            raise ConfigError(
                "a classifier on a model object cannot be pickled, for its weights would go along. Save the model with "
                "save(folder) and use SentimentClassifier(folder)."
            )
        state = dict(super().__getstate__())
        state.pop("_cache", None)
        return state

    def __sklearn_clone__(self) -> SentimentClassifier:
        return type(self)(**self.get_params(deep=False))  # a model object is shared, not copied

    def __sklearn_is_fitted__(self) -> bool:
        return True  # a checkpoint comes with its probe or unit; `decides_by` raises where it does not
