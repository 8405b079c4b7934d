"""One fine-tuning run on a GLUE task: its rows as a model reads them, the run, and its folder.

A run is its learning rate and its seed. Its folder appears whole when it has ended, so a killed one starts again from
its seed and comes to the same end.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lbzoo.errors import TrainingError
from lbzoo.files import replaced_folder
from lbzoo.states import BATCH_SIZE
from lbzoo.text.pairs import as_inputs
from lbzoo.transfer.encoders import Encoder, encoder_of
from lbzoo.transfer.examples import Examples, LabelledTexts, labelled_texts
from lbzoo.transfer.finetuning import Settings, Tuned, finetune
from lbzoo.transfer.glue import Split
from lbzoo.transfer.glue_files import write_submission
from lbzoo.transfer.glue_metrics import score
from lbzoo.transfer.labels import label_list, number_list
from lbzoo.transfer.tasks import Classify, Regress
from lbzoo.transfer.tasks import Task as Kind
from training import glue_output
from training.cluster import Cluster
from training.glue_data import Data

RESULT = "result.json"


class Runs:
    """Runs of one model on one task, in a folder each.

    Args:
        model: a loaded model; each run starts from a copy.
        settings: all but the learning rate.
        early_stopping: whether dev decides on the epoch; else all epochs are trained and dev is only measured.
        reading: options of `encoder_of`: dtype, max_length, pool, window.
        cluster: the workers, which all make the same calls and see the same folder; the chief writes it.
    """

    def __init__(
        self,
        model: Any,
        data: Data,
        settings: Settings,
        early_stopping: bool,
        reading: Mapping[str, Any],
        folder: Path,
        cluster: Cluster,
    ) -> None:
        self.model, self.data, self.reading, self.folder = model, data, dict(reading), folder
        self.cluster = cluster
        first = self._encoder()
        self.settings = settings.filled(first.defaults)
        self.early_stopping = early_stopping
        self._kind = kind_of(data.train)
        self._train = examples_of(first, data.train, self._kind)
        self._held_out = examples_of(first, data.dev[0], self._kind) if early_stopping else None
        self._texts = {split.name: first.encode(list(as_inputs(split.texts))) for split in (*data.dev, *data.tests)}
        self.cut = {"train": self._train.cut, **{name: cut for name, (_, cut) in self._texts.items()}}

    def path(self, rate: float, seed: int) -> Path:
        """Of a run's folder."""
        return self.folder / f"rate-{rate:g}-seed-{seed}"

    def run(self, rate: float, seed: int) -> dict[str, Any]:
        """Its result: `rate`, `seed`, `minutes`, and `splits` (metrics of each dev split) or `error`.

        A run that has ended is read, not repeated.
        """
        path = self.path(rate, seed)
        ended = (path / RESULT).is_file()
        self.cluster.agreed(int(ended), f"whether {path.name} has ended")
        if ended:
            return glue_output.read(path / RESULT)
        start = time.monotonic()
        found: dict[str, Any] = {"rate": rate, "seed": seed}
        answers: dict[str, list[Any]] = {}
        try:
            told, answers = self._tuned(dataclasses.replace(self.settings, learning_rate=rate), seed)
            found.update(told)
        except TrainingError as error:  # the other seeds go on; this one is shown as what it is
            found["error"] = str(error)
        found["minutes"] = round((time.monotonic() - start) / 60, 3)
        if self.cluster.chief:
            with replaced_folder(path) as aside:
                for split in self.data.tests if answers else ():
                    write_submission(split.task, split, answers[split.name], aside)
                (aside / RESULT).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        self.cluster.barrier()
        return found

    def _tuned(self, settings: Settings, seed: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """(What the result has of a run that went well, the answers to the test splits)."""
        encoder = self._encoder()
        tuned = finetune(encoder, self._train, self._held_out, settings, seed, self.cluster.strategy)
        splits = {}
        for split in self.data.dev:
            found = score(split.task, self._answers(encoder, tuned, split), split.labels)
            splits[split.name] = {"values": dict(found.values), "undefined": dict(found.undefined)}
        answers = {split.name: self._answers(encoder, tuned, split) for split in self.data.tests}
        return {"splits": splits, "epoch": tuned.best_epoch, "history": tuned.history}, answers

    def _answers(self, encoder: Encoder, tuned: Tuned, split: Split) -> list[Any]:
        """Label names, or numbers."""
        return answers_of(encoder, tuned, self._kind, self._texts[split.name][0])

    def _encoder(self) -> Encoder:
        with self.cluster.strategy.scope():
            return encoder_of(self.model, **self.reading)


def kind_of(train: Split) -> Kind:
    """What is learnt from a split: a number, or one of its task's labels in the public order."""
    given = _labelled(train)
    return Regress(given, None) if train.task.regression else Classify(given, None, train.task.labels)


def examples_of(encoder: Encoder, split: Split, kind: Kind) -> Examples:
    """A labelled split as a model is trained on it."""
    given = _labelled(split)
    return given.encoded(encoder, *kind.targets(given.labels))


def answers_of(encoder: Encoder, tuned: Tuned, kind: Kind, rows: Sequence[Any]) -> list[Any]:
    """A fine-tuned model's answers to encoded rows: label names, or numbers.

    Raises:
        TrainingError: features or a head that are not finite.
    """
    features = encoder.read(rows, BATCH_SIZE)
    if not np.isfinite(features).all() or not np.isfinite(tuned.head.coef).all():
        raise TrainingError("the answers are not finite. Lower the learning rate.")
    return kind.probe(tuned.head, encoder.reads, {}).predict(features).tolist()


def _labelled(split: Split) -> LabelledTexts:
    return labelled_texts(split.texts, split.labels, None, number_list if split.task.regression else label_list)
