"""`TextClassifier`: a checkpoint fine-tuned end to end on texts and labels of your own, as scikit-learn has it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state

from lbzoo.errors import CheckpointError, ConfigError, NotFittedError
from lbzoo.loading import checkpoint_folder, is_path
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.states import BATCH_SIZE
from lbzoo.text.batching import windows
from lbzoo.transfer.answers import LinearAnswers, inputs_for
from lbzoo.transfer.encoders import Encoder, encoder_for, encoder_of
from lbzoo.transfer.examples import LabelledTexts, labelled_texts, validation_texts
from lbzoo.transfer.labels import as_label_array
from lbzoo.transfer.probe import SEED, Probe

if TYPE_CHECKING:
    from lbzoo.transfer.tasks import Task

_WINDOW, _WINDOW_SIZE = 1024, 32 << 20  # texts, and characters, that are sorted together for an answer
_SETTINGS = (
    *("epochs", "batch_size", "learning_rate", "unfreeze", "patience", "language_model_weight", "dropout"),
    "weight_decay",
)


class TextClassifier(LinearAnswers, ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier, or regressor, that trains all weights of a checkpoint on raw texts or pairs of texts.

    `fit` first fits a linear head on the features of the frozen checkpoint, then trains both. After each epoch the
    held-out data decide; the weights of the best epoch are kept, so on those data the outcome is never worse than the
    frozen checkpoint with the head alone. The checkpoint that was named stays as it is.

    Where a parameter is None, the model's family decides:

    | parameter | an mLSTM | a BERT |
    | --- | --- | --- |
    | epochs, batch_size | 4, 32 | 3, 32 |
    | learning_rate | 3e-4 | 3e-5 x 768 / width: 3e-5 for BERT-base, 6e-5 for `bert-minilm-l6` |
    | unfreeze | "gradual" | "all" |
    | dropout (of the features) | 0.3 | as the checkpoint's configuration says, mostly 0.1 |
    | weight_decay | 0: Adam | 0.01: AdamW, layer norms and biases left out |

    Args:
        model: a checkpoint's name, its folder, or a model: an mLSTM, whose features are the last hidden state, or a
            BERT, for whose features see `pool`.
        epochs: most passes over the texts after the head is fitted.
        batch_size: texts of one update. The texts are spread evenly, so no batch is a left-over.
        learning_rate: at the peak of a linear schedule with a tenth of warm-up.
        unfreeze: "gradual" lets one more group of weights train with each epoch, from the head down (of an mLSTM the
            recurrent layer, then the embedding; of a BERT a layer each, then the embeddings); "all" trains all of them
            from the first step; "head" trains the head alone.
        patience: epochs without a better result on held-out data after which training stops.
        validation_fraction: of each class, held out where no validation data is given; 0 for none.
        window: of an mLSTM, how far back gradients go through a text, in bytes; None for 256. Longer texts are read
            whole all the same: the state at the start of the window is carried in.
        language_model_weight: of an mLSTM, of the next-byte loss beside that of the labels; 0 leaves it out.
        dropout: share of the features that are zeroed at random in training. A BERT's layers drop as its
            configuration says besides.
        dtype: what the model computes in, "float32" or "bfloat16".
        random_state: int, numpy RandomState, or None for numpy's global one. The same int gives the same weights.
        task: "classify" for one of the labels, or "regress" for a number, by the squared error; `predict` then gives
            floats and `score` R^2.
        pool: of a BERT, what the features are: "pooled" for the pooler's output, "cls", "mean" or "max" over the
            tokens; None for "pooled" where the checkpoint was trained with a head on the pooler, else "mean".
        max_length: of a BERT, most tokens of a text or pair; what is longer is cut, the longer text of a pair first,
            with a warning that says how many were. None for 256, or as many as the model has positions for.
        weight_decay: of AdamW, which 0 makes Adam.

    Attributes:
        classes_: labels in the order of `predict_proba`'s columns, as an array, of the type they came in; not of a
            regression.
        history_: one dict an epoch, 0 being the head alone: trained, loss, held_out_loss, held_out_accuracy or
            held_out_r2. Losses of a regression are in units of the variance of the labels that were trained on.
        best_epoch_: the epoch whose weights these are.
        model_: the fine-tuned model. probe_: its head, a `Probe`.

    References:
        Howard & Ruder 2018, "Universal Language Model Fine-tuning for Text Classification" (gradual unfreezing);
        Dai & Le 2015, "Semi-supervised Sequence Learning" (back-propagation through the end of a text);
        Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features" (the head first);
        Devlin et al. 2019, "BERT" (section 4 and appendix A.3).
    """

    def __init__(
        self,
        model: Any = DEFAULT_MODEL,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        unfreeze: str | None = None,
        patience: int = 2,
        validation_fraction: float = 0.1,
        window: int | None = None,
        language_model_weight: float = 0.0,
        dropout: float | None = None,
        dtype: str = "float32",
        random_state: Any = SEED,
        task: str = "classify",
        pool: str | None = None,
        max_length: int | None = None,
        weight_decay: float | None = None,
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
        self.task = task
        self.pool = pool
        self.max_length = max_length
        self.weight_decay = weight_decay

    def fit(
        self,
        X: Iterable[Any],
        y: Iterable[Any],
        sample_weight: Any = None,
        validation_data: Any = None,
        class_weight: Any = None,
    ) -> TextClassifier:
        """Fine-tune.

        Args:
            X: texts; a str goes through the checkpoint's text policy, bytes are read as they are. Any length. Or pairs
                of texts: tuples of two, an array or a DataFrame of two columns. A BERT reads a pair with a segment for
                each, an mLSTM one text after the other.
            y: one label each: all str, all int, all bool, or all whole floats; for task="regress" finite numbers.
            sample_weight: numbers >= 0, one each, of which the ratios matter. A text of weight 0 counts as not given.
            validation_data: (texts, labels) or (texts, labels, weights) that choose the head's penalty and the epoch.
            class_weight: {label: number > 0}, "balanced" (inverse to the class's weight in y), or None. They count in
                the held-out data, too. Not for task="regress".

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
        from lbzoo.transfer.tasks import task_of

        settings = Settings(**{name: getattr(self, name) for name in _SETTINGS})
        task_class, seed = task_of(self.task), _seed(self.random_state)
        given = labelled_texts(X, y, sample_weight, task_class.read_labels)
        task = task_class(given, class_weight)
        if validation_data is None:
            kept, held = self._split(given, task, seed)
            train, held_out = given.take(kept), given.take(held) if len(held) else None
        else:
            train, held_out = given, validation_texts(validation_data, task.read_labels, given.pairs)
        # a stranger among the labels is told before a model is loaded
        named = ((train, "labels"), (held_out, "labels" if validation_data is None else "validation labels"))
        targets = [None if part is None else task.targets(part.labels, what) for part, what in named]
        encoder = encoder_of(self.model, self.dtype, self.window, self.max_length, self.pool)
        train = train.encoded(encoder, *targets[0])
        held_out = None if held_out is None else held_out.encoded(encoder, *targets[1])
        parts = [train] if held_out is None else [train, held_out]
        _tell_cut(encoder, sum(part.cut for part in parts), sum(len(part.rows) for part in parts), 3)
        tuned = finetune(encoder, train, held_out, settings, seed)
        figures = {
            "protocol": "fine-tuned end to end by TextClassifier.fit",
            "train_rows": len(train.rows),
            "held_out_rows": 0 if held_out is None else len(held_out.rows),
            "held_out_given": validation_data is not None,
            "pairs": given.pairs,
            "best_epoch": tuned.best_epoch,
            "history": tuned.history,
            "seed": seed,
        }
        self._keep(encoder, task.probe(tuned.head, encoder.reads, figures))
        return self

    def save(self, folder: str | os.PathLike, dtype: str = "float32") -> Path:
        """Write a checkpoint folder: `TextClassifier.load(folder)` and `lbzoo predict --model FOLDER` read it back.

        The head is its probe, so that `SentimentClassifier(folder)` answers by it as well (by one of a regression, with
        numbers). `classifier.json` holds the
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
        name = os.fspath(folder)
        if place.is_dir() and not is_path(name):  # a bare word would be a name of the zoo
            name = os.path.join(os.curdir, name)
        classifier = cls(**{"model": name, **saved.settings})
        classifier._keep(encoder_for(saved.model, saved.head, classifier.dtype, classifier.window), saved.head)
        return classifier

    def _keep(self, encoder: Encoder, head: Probe) -> None:
        self._encoder, self.model_, self.probe_ = encoder, encoder.model, head
        self.__dict__.pop("classes_", None)  # of a fit before
        if head.link != "identity":
            self.classes_ = as_label_array(head.classes)
        self.history_, self.best_epoch_ = head.meta.get("history", []), head.meta.get("best_epoch", 0)

    def _split(self, given: LabelledTexts, task: Task, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to hold out."""
        fraction = self.validation_fraction
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float, np.number)) or not 0 <= fraction < 1:
            raise ConfigError(
                f"validation_fraction must be a number >= 0 and < 1. Received: validation_fraction={fraction!r}."
            )
        if not fraction:
            return np.arange(len(given.labels)), np.arange(0)
        kept, held = task.split(given.labels, fraction, seed)
        if not len(held):
            warnings.warn(
                f"no text could be held out of {len(given.labels)}, one a class: all epochs are trained, and nothing "
                "says which is best. Give more texts, or validation_data.",
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

    def _iter_features(self, texts: Iterable[Any], probe: Probe, window: int | None = None) -> Iterator[np.ndarray]:
        if "_encoder" not in self.__dict__:  # a copy from another process
            self._encoder = encoder_for(self.model_, probe, self.dtype, self.window)
        return self._read_windows(windows(inputs_for(texts, probe), window or _WINDOW, _WINDOW_SIZE))

    def _read_windows(self, parts: Iterable[list[Any]]) -> Iterator[np.ndarray]:
        encoder, cut, count = self._encoder, 0, 0
        for part in parts:
            rows, more = encoder.encode(part)
            cut, count = cut + more, count + len(rows)
            yield encoder.read(rows, BATCH_SIZE)
        _tell_cut(encoder, cut, count, 5)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is compiled; the weights of a fitted classifier go along."""
        state = dict(super().__getstate__())
        state.pop("_encoder", None)
        return state

    def __sklearn_clone__(self) -> TextClassifier:
        return type(self)(**self.get_params(deep=False))  # a model object is shared, not copied: fit copies it

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "probe_")

    def __sklearn_tags__(self) -> Any:  # scikit-learn 1.6 and later
        from sklearn.utils import RegressorTags

        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.no_validation = True
        if self.task == "regress":
            tags.estimator_type, tags.classifier_tags, tags.regressor_tags = "regressor", None, RegressorTags()
        return tags

    @property
    def _estimator_type(self) -> str:  # before 1.6
        return "regressor" if self.task == "regress" else "classifier"


def _tell_cut(encoder: Encoder, cut: int, count: int, level: int) -> None:
    if cut:
        warnings.warn(
            f"{cut} of {count} texts have more than the {encoder.limit} tokens that are read of one; their ends were "
            "left out. max_length says how many are read, up to the positions that the model has.",
            UserWarning,
            stacklevel=level,
        )


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
