"""The data of a GLUE task as a run needs them: train, dev, and the test splits that the leaderboard asks for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Optional

import numpy as np

from lbzoo.errors import ConfigError, TableError
from lbzoo.transfer.glue import TASKS, Split, Task
from lbzoo.transfer.glue_files import read_hub_split, read_split

HUB = "hub"  # instead of a folder of tsv files


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
