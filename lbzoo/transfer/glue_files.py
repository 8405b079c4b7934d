"""GLUE's files: splits from the official tsv folders and from the Hub, and the leaderboard's files.

In a tsv file a quotation mark is a character as any other. A line ends at a line feed and nowhere else: a carriage
return or a Unicode line separator belongs to a text.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lbzoo.errors import ConfigError, DownloadError, MissingPartError, TableError
from lbzoo.files import replaced_file
from lbzoo.transfer.glue import SCORES, Split, Task
from lbzoo.transfer.labels import encode_labels

HUB_REPOSITORY, HUB_COMMIT = "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
NO_LABEL = ("", "-")  # "-" stands in MNLI's sources where the annotators did not agree


def read_split(task: Task, folder: str | os.PathLike, split: str) -> Split:
    """Read one split from the official tsv files, plain or gz, as they are.

    Quotation marks are characters as any other. A row of train or dev that lacks cells, of which QQP has a few, is
    passed over and counted in `damaged`; so is a row without a label.

    Args:
        task: of `TASKS`.
        folder: the one that holds CoLA, MRPC, ... Split names are `task.rows`: train, dev, test; MNLI has dev_matched,
            dev_mismatched, test_matched and test_mismatched.

    Raises:
        ConfigError: a split that the task does not have.
        TableError: file or column missing, an unknown label, no rows, or a test file that lacks cells.
    """
    labelled = _labelled(task, split)
    wanted = [*task.texts, *([task.label] if labelled else [])]
    path = Path(folder) / task.folder / f"{split}.tsv"
    file, columns, rows = _table_rows(path, task.headerless if labelled else (), wanted)
    texts, labels, index, damaged = [], [], [], 0
    for number, cells in rows:
        if len(cells) != len(columns) or (labelled and cells[columns[task.label]] in NO_LABEL):
            if not labelled:
                raise TableError(
                    f"{file}, line {number} must have {len(columns)} cells. Received: {len(cells)}. The leaderboard "
                    "wants every row of a test split."
                )
            damaged += 1
            continue
        index.append(cells[columns[task.index]] if task.index in columns else str(len(index)))
        found = tuple(cells[columns[name]] for name in task.texts)
        texts.append(found if len(found) == 2 else found[0])
        if labelled:
            labels.append(_target(task, cells[columns[task.label]], f"{file}, line {number}"))
    if not texts:
        raise TableError(f"{file} has no row that can be used.")
    return Split(task, split, texts, labels if labelled else None, index, damaged)


def read_hub_split(task: Task, split: str) -> Split:
    """Read one split from the Hub's `nyu-mll/glue` with the `datasets` library, which keeps its own cache.

    Labels are taken by their names. Untested here: the real Hub.

    Raises:
        ConfigError: a split that the task does not have.
        MissingPartError: the extra `lbzoo[glue]` is not installed.
        DownloadError: the Hub or its cache does not give it.
        TableError: the copy has other columns or other labels than this table.
    """
    labelled = _labelled(task, split)
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingPartError(
            f"reading GLUE from the Hub needs the datasets library ({error}). Run: pip install 'lbzoo[glue]', or give "
            "the folder of the official tsv files."
        ) from error
    name = "test" if split == "diagnostic" else split.replace("dev", "validation")
    try:
        data = load_dataset(HUB_REPOSITORY, task.name, split=name, revision=HUB_COMMIT)
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"{HUB_REPOSITORY} {task.name} {name} could not be read from the Hub: {error}. Try again, or give the "
            "folder of the official tsv files."
        ) from error
    columns = task.hub_texts or task.texts
    missing = [each for each in (*columns, "label") if each not in data.features]
    if missing:
        found = ", ".join(data.features)
        raise TableError(f"{HUB_REPOSITORY} {task.name} {name} lacks {', '.join(missing)}. Received: {found}.")
    cells = [list(data[column]) for column in columns]
    texts = list(zip(*cells)) if len(cells) == 2 else cells[0]
    labels = None
    if labelled and task.regression:
        labels = [float(value) for value in data["label"]]
    elif labelled:
        names = list(data.features["label"].names)
        if sorted(names) != sorted(task.labels):
            raise TableError(f"{HUB_REPOSITORY} {task.name} has other labels than {task.labels}. Received: {names}.")
        labels = [names[value] for value in data["label"]]
    index = [str(value) for value in (data["idx"] if "idx" in data.features else range(len(texts)))]
    return Split(task, split, texts, labels, index)


def write_submission(task: Task, split: Split, answers: Sequence[Any], folder: Path) -> Path:
    """The leaderboard's file of a test split, with its own name and labels; scores are cut to 0 ... 5.

    Args:
        answers: label names, or numbers for a regression.

    Raises:
        ConfigError: other answers than the task has, or not one for each row.
    """
    if len(answers) != len(split.index) or split.name not in task.submission:
        raise ConfigError(
            f"the leaderboard wants an answer for each row of {' or '.join(task.submission)}. "
            f"Received: {len(answers)} answers to the {len(split.index)} rows of {split.name}."
        )
    if task.regression:
        written = [f"{value:.3f}" for value in np.clip(np.asarray(answers, np.float64), *SCORES)]
    else:
        written = [task.in_files[place] for place in encode_labels(list(answers), task.labels)[1]]
    path = folder / task.submission[split.name]
    with replaced_file(path) as aside, open(aside, "w", encoding="utf-8", newline="\n") as file:
        file.write("index\tprediction\n")
        file.writelines(f"{place}\t{answer}\n" for place, answer in zip(split.index, written))
    return path


def _labelled(task: Task, split: str) -> bool:
    if split not in task.rows:
        raise ConfigError(f"{task.name} has the splits {', '.join(task.rows)}. Received: split={split!r}.")
    return split not in task.submission


def _target(task: Task, written: str, place: str) -> str | float:
    """The label's name, or the score."""
    if not task.regression:
        if written not in task.in_files:
            known = ", ".join(task.in_files)
            raise TableError(f"{place}: unknown label. Received: {written!r}. Known: {known}.")
        return task.labels[task.in_files.index(written)]
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not SCORES[0] <= value <= SCORES[1]:
        raise TableError(f"{place}: a score is a number from 0 to 5. Received: {written!r}.")
    return value


def _table_rows(
    path: Path, names: Sequence[str], wanted: Iterable[str]
) -> tuple[str, dict[str, int], Iterator[tuple[int, list[str]]]]:
    """Open `path`, or the .gz beside it.

    Args:
        names: of the columns, where the file has no header; else empty.
        wanted: columns that must be there.

    Returns:
        (the file's name for messages, the place of each column, an iterator of (line number, cells)).

    Raises:
        TableError: no such file, not UTF-8, or a column missing.
    """
    found = next((each for each in (path, Path(f"{path}.gz")) if each.is_file()), None)
    if found is None:
        raise TableError(
            f"{str(path)!r} does not exist, nor does a .gz of it. The official layout is wanted: a folder of each task "
            "(CoLA, MRPC, ..., diagnostic) with train.tsv, dev.tsv and test.tsv."
        )
    rows = _lines(found)
    if not names:
        _, names = next(rows, (0, []))
    missing = [name for name in wanted if name not in names]
    if missing:
        raise TableError(f"{str(found)!r} lacks the column {', '.join(missing)}. Received: {list(names)}.")
    return str(found), {name: place for place, name in enumerate(names)}, rows


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                line = line.removesuffix("\n").removesuffix("\r")
                if line:
                    yield number, line.split("\t")
    except UnicodeDecodeError as error:
        raise TableError(f"{str(path)!r} is not UTF-8 text: {error}.") from error
    except (zlib.error, EOFError, OSError) as error:
        raise TableError(f"{str(path)!r} cannot be read: {error}.") from error
