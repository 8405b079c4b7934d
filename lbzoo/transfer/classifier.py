"""`TextClassifier`: a checkpoint fine-tuned end to end on texts and labels of your own, as scikit-learn has it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state

from lbzoo.errors import CheckpointError, ConfigError, NotFittedError
from lbzoo.loading import checkpoint_folder, is_path
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.states import BATCH_SIZE
from lbzoo.text.batching import windows
from lbzoo.text.clean import as_texts
from lbzoo.transfer.answers import LinearAnswers
from lbzoo.transfer.encoders import Encoder, encoder_of
from lbzoo.transfer.examples import class_weights, labelled_texts, validation_texts
from lbzoo.transfer.labels import Label, as_label_array, encode_labels
from lbzoo.transfer.probe import SEED, Probe, hold_out

_WINDOW, _WINDOW_TOKENS = 1024, 32 << 20  # texts that are sorted together for an answer
_OF_THE_BODY = ("results", "baselines", "sentiment_unit", "polarity", "probe", "name")  # no longer true of new weights


class TextClassifier(LinearAnswers, ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier that trains all weights of a checkpoint on raw texts.

    `fit` first fits a linear head on the features of the frozen checkpoint, then trains both. After each epoch the
    held-out data decide; the weights of the best epoch are kept, so on those data the outcome is never worse than the
    frozen checkpoint with the head alone. The checkpoint that was named stays as it is.

    Args:
        model: a checkpoint's name, its folder, or a model. An mLSTM; its features are the last hidden state.
        epochs: most passes over the texts after the head is fitted.
        batch_size: texts of one update. The texts are spread evenly, so no batch is a left-over.
        learning_rate: Adam's, at the peak of a linear schedule with a tenth of warm-up.
        unfreeze: "gradual" lets one more group of weights train with each epoch, from the head down (the recurrent
            layer, then the embedding); "all" trains all of them from the first step; "head" trains the head alone.
        patience: epochs without a better result on held-out data after which training stops.
        validation_fraction: of each class, held out where no validation data is given; 0 for none.
        window: how far back gradients go through a text, in bytes. Longer texts are read whole all the same: the state
            at the start of the window is carried in.
        language_model_weight: of the next-byte loss beside that of the labels; 0 leaves it out.
        dropout: share of the features that are zeroed at random in training.
        dtype: what the model computes in, "float32" or "bfloat16".
        random_state: int, numpy RandomState, or None for numpy's global one. The same int gives the same weights.

    Attributes:
        classes_: labels in the order of `predict_proba`'s columns, as an array, of the type they came in.
        history_: one dict an epoch, 0 being the head alone: trained, loss, held_out_loss, held_out_accuracy.
        best_epoch_: the epoch whose weights these are.
        model_: the fine-tuned model. probe_: its head, a `Probe`.

    References:
        Howard & Ruder 2018, "Universal Language Model Fine-tuning for Text Classification" (gradual unfreezing);
        Dai & Le 2015, "Semi-supervised Sequence Learning" (back-propagation through the end of a text);
        Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features" (the head first).
    """

    def __init__(
        self,
        model: Any = DEFAULT_MODEL,
        epochs: int = 4,
        batch_size: int = 32,
        learning_rate: float = 3e-4,
        unfreeze: str = "gradual",
        patience: int = 2,
        validation_fraction: float = 0.1,
        window: int = 256,
        language_model_weight: float = 0.0,
        dropout: float = 0.3,
        dtype: str = "float32",
        random_state: Any = SEED,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.unfreeze = unfreeze
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.window = window
        self.language_model_weight = language_model_weight
        self.dropout = dropout
        self.dtype = dtype
        self.random_state = random_state

    def fit(
        self,
        X: Iterable[str | bytes],
        y: Iterable[Any],
        sample_weight: Any = None,
        validation_data: Any = None,
        class_weight: Any = None,
    ) -> TextClassifier:
        """Fine-tune.

        Args:
            X: texts; a str goes through the checkpoint's text policy, bytes are read as they are. Any length.
            y: one label each: all str, all int, all bool, or all whole floats.
            sample_weight: numbers >= 0, one each, of which the ratios matter. A text of weight 0 counts as not given.
            validation_data: (texts, labels) or (texts, labels, weights) that choose the head's penalty and the epoch.
            class_weight: {label: number > 0}, "balanced" (inverse to the class's weight in y), or None. They count in
                the held-out data, too.

        Returns:
            The classifier, fitted.

        Raises:
            TextError: something that is no text or no label (None, NaN); names its position.
            ConfigError: lengths that differ, one class only, labels of the validation data that y does not have, an
                option that cannot be honoured.
            TrainingError: gradients that are not finite, many steps in a row.
            UnknownModelError, DownloadError, CheckpointError: as `lbzoo.load`.
        """
        from lbzoo.transfer.finetuning import Settings, finetune

        names = ("epochs", "batch_size", "learning_rate", "unfreeze", "patience", "language_model_weight", "dropout")
        settings = Settings(**{name: getattr(self, name) for name in names})
        seed = _seed(self.random_state)
        given = labelled_texts(X, y, sample_weight)
        classes = encode_labels(given.labels)[0]
        if len(classes) < 2:
            raise ConfigError(f"a classifier needs labels of two classes or more. Received: only {classes[0]!r}.")
        factors = class_weights(class_weight, classes, given)
        if validation_data is None:
            kept, held = self._split(given.labels, seed)
            train, held_out = given.take(kept), given.take(held) if len(held) else None
        else:
            train, held_out = given, validation_texts(validation_data)
            encode_labels(held_out.labels, classes)  # a stranger among them is told before a model is loaded
        encoder = encoder_of(self.model, self.dtype, self.window)
        train = train.encoded(encoder.encode, classes, factors)
        held_out = None if held_out is None else held_out.encoded(encoder.encode, classes, factors)
        tuned = finetune(encoder, train, held_out, settings, seed)
        figures = {
            "protocol": "fine-tuned end to end by TextClassifier.fit",
            "train_rows": len(train.rows),
            "held_out_rows": 0 if held_out is None else len(held_out.rows),
            "held_out_given": validation_data is not None,
            "best_epoch": tuned.best_epoch,
            "history": tuned.history,
            "seed": seed,
        }
        link = "softmax" if len(classes) > 2 else "logistic"
        head = Probe(tuned.head.coef, tuned.head.intercept, classes, **encoder.reads, meta=figures, link=link)
        self._keep(encoder, head)
        return self

    def save(self, folder: str | os.PathLike, dtype: str = "float32") -> Path:
        """Write a checkpoint folder: `TextClassifier.load(folder)` and `lbzoo predict --model FOLDER` read it back.

        The head is its probe, so that `SentimentClassifier(folder)` answers by it as well. `classifier.json` holds the
        settings, and the answers to a few made-up texts that loading checks; no text that was trained on is in there.

        Args:
            folder: where to; a checkpoint that is there is replaced.
            dtype: of the weights on disk, "float32" or "float16".

        Raises:
            NotFittedError: before `fit`.
            CheckpointError: see `lbzoo.checkpoint.save`.
        """
        from lbzoo.transfer import classifier_file

        head = self._decider()
        return classifier_file.save(folder, self.model_, head, _settings(self), dtype)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> TextClassifier:
        """Read what `save` wrote, every file verified, and the expected answers checked.

        Args:
            folder: the folder, or a Hub repository that holds one ("user/repo@revision").

        Returns:
            A fitted classifier. Its `model` is the name of the checkpoint that was fine-tuned, or else the folder: what
            another `fit` starts from.

        Raises:
            CheckpointError: see `lbzoo.checkpoint.load`; also a folder that `save` did not write, or one that does not
                answer as it did when it was saved.
        """
        from lbzoo.transfer import classifier_file

        place = Path(os.path.expanduser(folder))
        saved = classifier_file.load(place if place.is_dir() else checkpoint_folder(folder))
        strangers = sorted(set(saved.settings) - set(cls().get_params()))
        if strangers:
            raise CheckpointError(
                f"{folder} has settings that this lbzoo does not know. Received: {', '.join(strangers)}. "
                "Was it written by a newer one?"
            )
        classifier = cls(**{"model": os.fspath(folder), **saved.settings})
        classifier._keep(encoder_of(saved.model, classifier.dtype, classifier.window), saved.head)
        return classifier

    def _keep(self, encoder: Encoder, head: Probe) -> None:
        self._encoder, self.model_, self.probe_ = encoder, encoder.model, head
        self.classes_ = as_label_array(head.classes)
        self.history_, self.best_epoch_ = head.meta.get("history", []), head.meta.get("best_epoch", 0)

    def _split(self, labels: list[Label], seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to hold out."""
        fraction = self.validation_fraction
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float, np.number)) or not 0 <= fraction < 1:
            raise ConfigError(
                f"validation_fraction must be a number >= 0 and < 1. Received: validation_fraction={fraction!r}."
            )
        if not fraction:
            return np.arange(len(labels)), np.arange(0)
        kept, held = hold_out(labels, fraction, seed)
        if not len(held):
            warnings.warn(
                f"no text could be held out of {len(labels)}, one a class: all epochs are trained, and nothing says "
                "which is best. Give more texts, or validation_data.",
                UserWarning,
                stacklevel=3,
            )
        return kept, held

    def _decider(self) -> Probe:
        if not hasattr(self, "probe_"):
            raise NotFittedError(
                "this TextClassifier is not fitted. Call fit(texts, labels), or TextClassifier.load(folder) for one "
                "that was saved."
            )
        return self.probe_

    def _iter_features(
        self, texts: Iterable[str | bytes], probe: Probe, window: int | None = None
    ) -> Iterator[np.ndarray]:
        if "_encoder" not in self.__dict__:  # a copy from another process
            self._encoder = encoder_of(self.model_, self.dtype, self.window)
        encoder = self._encoder
        encoded = (encoder.encode(text) for text in as_texts(texts))
        return (encoder.read(rows, BATCH_SIZE) for rows in windows(encoded, window or _WINDOW, _WINDOW_TOKENS))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is compiled; the weights of a fitted classifier go along."""
        state = dict(super().__getstate__())
        state.pop("_encoder", None)
        return state

    def __sklearn_clone__(self) -> TextClassifier:
        return type(self)(**self.get_params(deep=False))  # a model object is shared, not copied: fit copies it

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "probe_")


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise ConfigError(
            f"random_state must be an integer >= 0, a numpy RandomState or None. Received: {random_state!r}."
        ) from None


def _settings(classifier: TextClassifier) -> dict[str, Any]:
    """The parameters as JSON values; a model and a random state that are no names and numbers are left out."""
    values = {name: getattr(v, "item", lambda v=v: v)() for name, v in classifier.get_params(deep=False).items()}
    if not isinstance(values["random_state"], int):
        del values["random_state"]
    if not isinstance(values["model"], str) or is_path(values["model"]):
        del values["model"]
    return values
