"""A small made-up GLUE in the official layout, for tests, and a BERT to try on it: no row is from the data sets."""

from __future__ import annotations

import gzip
from pathlib import Path

from lbzoo import checkpoint
from lbzoo.models.bert import BertEncoder
from lbzoo.models.config import BertConfig
from lbzoo.text.vocabulary import Vocabulary
from lbzoo.transfer.glue import TASKS, Task
from tests.conftest import seeded
from tests.small_vocabulary import small_vocabulary

WORDS = "river stone lamp bread winter glass road cloud horse paper".split()
MNLI_COLUMNS = (
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "label1"),
)
COLUMNS = {  # of train and dev; a test file has "index" first and no label
    "sst2": ("sentence", "label"),
    "mrpc": ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
    "stsb": (
        "index",
        "genre",
        "filename",
        "year",
        "old_index",
        "source1",
        "source2",
        "sentence1",
        "sentence2",
        "score",
    ),
    "qqp": ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
    "mnli": (*MNLI_COLUMNS, "gold_label"),
    "qnli": ("index", "question", "sentence", "label"),
    "rte": ("index", "sentence1", "sentence2", "label"),
    "wnli": ("index", "sentence1", "sentence2", "label"),
}


def write_rows(path: Path, rows: list[list[str]], packed: bool = False) -> Path:
    """The tsv file, or its .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join("\t".join(row) + "\n" for row in rows).encode("utf-8")
    if packed:
        path = path.with_name(path.name + ".gz")
        data = gzip.compress(data, mtime=0)
    path.write_bytes(data)
    return path


def made_text(row: int, column: int, label: int) -> str:
    """Words that say the label, for a model to learn it: 1 is "good". A hundred rows differ."""
    return f'{WORDS[row % 10]} {WORDS[(row // 10 + 3 * column) % 10]} {"good" if label else "bad"} "'


def made_split(folder: Path, task: Task, split: str, rows: int, packed: bool = False, start: int = 0) -> Path:
    """Write one split of `rows` rows, with every label in turn, the made texts from number `start` on."""
    labelled = split not in task.submission
    if task.name == "cola":
        columns = task.headerless if labelled else ("index", "sentence")
    elif task.name == "ax":
        columns = ("index", "sentence1", "sentence2")
    else:
        columns = COLUMNS[task.name]
        if not labelled:
            columns = tuple(name for name in columns if name not in (task.label, task.index))
            columns = (task.index, *columns)
    table = [] if labelled and task.headerless else [list(columns)]
    for row in range(rows):
        label = row % len(task.labels or (0, 1))
        cells = dict.fromkeys(columns, "x")
        cells[task.index] = str(row)
        cells[task.label] = f"{5 * label:.3f}" if task.regression else task.in_files[label]
        cells.update({name: made_text(start + row, place, label) for place, name in enumerate(task.texts)})
        table.append([cells[name] for name in columns])
    return write_rows(folder / task.folder / f"{split}.tsv", table, packed)


def made_glue(folder: Path, name: str, train: int = 24, dev: int = 12, test: int = 6) -> Path:
    """All splits of a task, no two with a row in common, and of MNLI the diagnostic set; the folder."""
    start = 0
    for split in TASKS[name].rows:
        rows = train if split == "train" else dev if split.startswith("dev") else test
        made_split(folder, TASKS[name], split, rows, start=start)
        start += rows
    if name == "mnli":
        made_split(folder, TASKS["ax"], "diagnostic", test)
    return folder


def save_bert(folder: Path) -> str:
    """Write a BERT of 16 units, without heads; its folder."""
    config = BertConfig(
        vocab_size=len(small_vocabulary()),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    made = seeded(BertEncoder(config, vocabulary=Vocabulary(small_vocabulary())))
    return str(checkpoint.save(made, folder))
