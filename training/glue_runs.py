"""One fine-tuning run on a GLUE task: the data as a model reads them, the run, and its folder.

A run is its learning rate and its seed. Its folder appears whole when it has ended, so a killed one starts again from
its seed and comes to the same end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import numpy as np

from lbzoo.errors import ConfigError, TableError, TrainingError
from lbzoo.files import parse_json, replaced_folder
from lbzoo.states import BATCH_SIZE
from lbzoo.text.pairs import as_inputs
from lbzoo.transfer.encoders import Encoder, encoder_of
from lbzoo.transfer.examples import Examples, labelled_texts
from lbzoo.transfer.finetuning import Settings, Tuned, finetune
from lbzoo.transfer.glue import TASKS, Split, Task
from lbzoo.transfer.glue_files import read_hub_split, read_split, write_submission
from lbzoo.transfer.glue_metrics import score
from lbzoo.transfer.labels import encode_labels, label_list, number_list
from lbzoo.transfer.probe import Probe, link_of
from training.cluster import Cluster

HUB = "hub"  # instead of a folder of tsv files
RESULT = "result.json"


@dataclasses.dataclass(frozen=True)
class Data:
    """Splits of a task: train, the dev splits, and those test splits that are there."""

    task: Task
    train: Split
    dev: tuple[Split, ...]
    tests: tuple[Split, ...]
    notes: tuple[str, ...]

    def digest(self) -> str:
        """Of the texts and labels that are trained and measured on."""
        told = [(split.texts, split.labels) for split in (self.train, *self.dev)]
        return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_data(task: Task, source: str, rows: Optional[int] = None, with_tests: bool = True) -> Data:
    """Read a task.

    Args:
        source: the folder of the official tsv files, or "hub".
        rows: train on so many rows, the same ones for all seeds; None for all.
        with_tests: also read what the leaderboard wants; a test file that is not there is a note.

    Raises:
        ConfigError: a task without train split, or too few rows for one of each label.
        TableError, MissingPartError, DownloadError: see `read_split` and `read_hub_split`.
    """
    if not task.dev_splits:
        raise ConfigError(f"{task.name} is answered by a model of MNLI. Received: --task {task.name}. Say --task mnli.")

    def read(split: str, of: Task = task) -> Split:
        return read_hub_split(of, split) if source == HUB else read_split(of, source, split)

    train, dev = read("train"), tuple(map(read, task.dev_splits))
    notes = [
        f"{split.name} has {len(split.texts)} rows ({split.damaged} damaged ones passed over), "
        f"published with {task.rows[split.name]}"
        for split in (train, *dev)
        if len(split.texts) != task.rows[split.name]
    ]
    if rows is not None and rows < len(train.texts):
        train = train.take(np.sort(np.random.default_rng(0).permutation(len(train.texts))[:rows]).tolist())
    missing = set(task.labels) - set(train.labels or ())
    if missing:
        raise ConfigError(
            f"a row of each label is needed to learn {task.name}. Received: {len(train.texts)} rows, none of "
            f"{', '.join(sorted(missing))}. Train on more rows."
        )
    tests = []
    for of in (task, TASKS["ax"]) if task.name == "mnli" else (task,):
        for split in of.submission if with_tests else ():
            try:
                tests.append(read(split, of))
            except TableError as error:
                notes.append(f"no {of.submission[split]} for the leaderboard: {error}".replace(str(source), "DATA"))
    return Data(task, train, dev, tuple(tests), tuple(notes))


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
        self._train = self._examples(first, data.train)
        self._held_out = self._examples(first, data.dev[0]) if early_stopping else None
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
            return parse_json((path / RESULT).read_bytes())
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
        features = encoder.read(self._texts[split.name][0], BATCH_SIZE)
        if not np.isfinite(features).all() or not np.isfinite(tuned.head.coef).all():
            raise TrainingError(f"the answers to {split.name} are not finite. Lower the learning rate.")
        labels = split.task.labels
        head = Probe(tuned.head.coef, tuned.head.intercept, list(labels), **encoder.reads, link=link_of(labels))
        return head.predict(features).tolist()

    def _encoder(self) -> Encoder:
        with self.cluster.strategy.scope():
            return encoder_of(self.model, **self.reading)

    def _examples(self, encoder: Encoder, split: Split) -> Examples:
        regression = split.task.regression
        given = labelled_texts(split.texts, split.labels, None, number_list if regression else label_list)
        targets = (
            np.array(given.labels, np.float32) if regression else encode_labels(given.labels, split.task.labels)[1]
        )
        return given.encoded(encoder, targets)
