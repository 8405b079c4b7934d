"""GLUE (Wang et al. 2019, "GLUE: A Multi-Task Benchmark"): one table of the nine tasks and the diagnostic set.

`TASKS` says of each: its files and their columns, one text or a pair, the names of the labels in the public order, the
metrics, and what always answering the commonest label scores. `glue_files` reads a `Split`, whose labels are names,
from the official tsv folders or the Hub; `glue_metrics` scores answers.

Test splits have no public labels: what is measured here is measured on dev, and is to be called so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Union

from lbzoo.errors import ConfigError

GlueText = Union[str, tuple[str, str]]
SCORES = (0.0, 5.0)  # of STS-B, lowest and highest


@dataclasses.dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: as the command line and the Hub have it. folder: as the official archive has it.
        texts: columns that hold the text, or the two texts of a pair.
        labels: their names in the public order, which is the order of a model's outputs; none for a regression.
        metrics: "matthews", "accuracy", "f1" (of the second label), "pearson", "spearman".
        submission: the leaderboard's file of each test split.
        rows: of each split as published; the order of the splits.
        baseline: metrics of the commonest label on each dev split, None where they are undefined; measured here, and
            missing where the data are not here (`glue_metrics.majority_baseline` computes them).
        label, index: columns. written: labels as the files have them, where that is not their name.
        headerless: the columns of a train or dev file that has no header.
        hub_texts: columns of the Hub's copy, where they are called otherwise.
    """

    name: str
    folder: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    submission: Mapping[str, str]
    rows: Mapping[str, int]
    baseline: Mapping[str, Mapping[str, float | None]]
    label: str = "label"
    index: str = "index"
    written: tuple[str, ...] = ()
    headerless: tuple[str, ...] = ()
    hub_texts: tuple[str, ...] = ()

    @property
    def regression(self) -> bool:
        """Whether the targets are numbers."""
        return not self.labels

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """One; two for MNLI, none for the diagnostic set."""
        return tuple(split for split in self.rows if split.startswith("dev"))

    @property
    def in_files(self) -> tuple[str, ...]:
        """The labels as tsv files have them, in the order of `labels`."""
        return self.written or self.labels


def _rows(train: int, dev: int, test: int) -> dict[str, int]:
    return {"train": train, "dev": dev, "test": test}


_PAIR, _ENTAILMENT = ("sentence1", "sentence2"), ("entailment", "not_entailment")
_MNLI_LABELS = ("entailment", "neutral", "contradiction")

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="cola",
            folder="CoLA",
            texts=("sentence",),
            labels=("unacceptable", "acceptable"),
            written=("0", "1"),
            headerless=("source", "label", "mark", "sentence"),
            metrics=("matthews",),
            submission={"test": "CoLA.tsv"},
            rows=_rows(8551, 1043, 1063),
            baseline={"dev": {"matthews": None}},
        ),
        Task(
            name="sst2",
            folder="SST-2",
            texts=("sentence",),
            labels=("negative", "positive"),
            written=("0", "1"),
            metrics=("accuracy",),
            submission={"test": "SST-2.tsv"},
            rows=_rows(67349, 872, 1821),
            baseline={"dev": {"accuracy": 444 / 872}},
        ),
        Task(
            name="mrpc",
            folder="MRPC",
            texts=("#1 String", "#2 String"),
            labels=("not_equivalent", "equivalent"),
            label="Quality",
            written=("0", "1"),
            hub_texts=_PAIR,
            metrics=("f1", "accuracy"),
            submission={"test": "MRPC.tsv"},
            rows=_rows(3668, 408, 1725),
            baseline={"dev": {"f1": 2 * 279 / (279 + 408), "accuracy": 279 / 408}},
        ),
        Task(
            name="stsb",
            folder="STS-B",
            texts=_PAIR,
            labels=(),
            label="score",
            metrics=("pearson", "spearman"),
            submission={"test": "STS-B.tsv"},
            rows=_rows(5749, 1500, 1379),
            baseline={"dev": {"pearson": None, "spearman": None}},
        ),
        Task(
            name="qqp",
            folder="QQP",
            texts=("question1", "question2"),
            labels=("not_duplicate", "duplicate"),
            label="is_duplicate",
            index="id",
            written=("0", "1"),
            metrics=("f1", "accuracy"),
            submission={"test": "QQP.tsv"},
            rows=_rows(363846, 40430, 390965),
            baseline={},
        ),
        Task(
            name="mnli",
            folder="MNLI",
            texts=_PAIR,
            labels=_MNLI_LABELS,
            label="gold_label",
            hub_texts=("premise", "hypothesis"),
            metrics=("accuracy",),
            submission={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
            rows={
                "train": 392702,
                "dev_matched": 9815,
                "dev_mismatched": 9832,
                "test_matched": 9796,
                "test_mismatched": 9847,
            },
            baseline={},
        ),
        Task(
            name="qnli",
            folder="QNLI",
            texts=("question", "sentence"),
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            submission={"test": "QNLI.tsv"},
            rows=_rows(104743, 5463, 5463),
            baseline={"dev": {"accuracy": 2761 / 5463}},
        ),
        Task(
            name="rte",
            folder="RTE",
            texts=_PAIR,
            labels=_ENTAILMENT,
            metrics=("accuracy",),
            submission={"test": "RTE.tsv"},
            rows=_rows(2490, 277, 3000),
            baseline={"dev": {"accuracy": 146 / 277}},
        ),
        Task(
            name="wnli",
            folder="WNLI",
            texts=_PAIR,
            labels=("not_entailment", "entailment"),
            written=("0", "1"),
            metrics=("accuracy",),
            submission={"test": "WNLI.tsv"},
            rows=_rows(635, 71, 146),
            baseline={"dev": {"accuracy": 40 / 71}},
        ),
        Task(  # answered by a model of MNLI
            name="ax",
            folder="diagnostic",
            texts=_PAIR,
            labels=_MNLI_LABELS,
            hub_texts=("premise", "hypothesis"),
            metrics=("matthews",),
            submission={"diagnostic": "AX.tsv"},
            rows={"diagnostic": 1104},
            baseline={},
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows of one split, in the order of the file.

    Attributes:
        texts: a str each, or a tuple of two for a pair.
        labels: names, or floats for a regression; None for a test split, whose labels nobody is to look at.
        index: what the leaderboard calls each row.
        damaged: rows of the file that were passed over because cells are missing.
    """

    task: Task
    name: str
    texts: list[GlueText]
    labels: list[Any] | None
    index: list[str]
    damaged: int = 0

    def take(self, rows: Sequence[int]) -> Split:
        """These rows, by position."""
        labels = None if self.labels is None else [self.labels[i] for i in rows]
        return dataclasses.replace(
            self, texts=[self.texts[i] for i in rows], labels=labels, index=[self.index[i] for i in rows]
        )


def find_task(name: str) -> Task:
    """The task of this name, in any case and with or without hyphens ("SST-2" is "sst2"); ConfigError for others."""
    task = TASKS.get(str(name).casefold().replace("-", ""))
    if task is None:
        raise ConfigError(f"GLUE has no task of this name. Received: {name!r}. Known: {', '.join(TASKS)}.")
    return task
