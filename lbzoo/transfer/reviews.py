"""The labelled review sets that sentiment is measured on: `sst`, `imdb` and `amazon`, read from a folder.

`read_task` gives texts and labels ("negative", "positive"); `evaluate` the accuracy of a classifier on them;
`frozen_probe_results` the protocol of Radford et al. (2017) on a language model whose weights stay as they are.
None of these sets ships with lbzoo: the folder is the user's own copy.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np

from lbzoo.errors import ConfigError, TableError
from lbzoo.states import BATCH_SIZE, prepare
from lbzoo.transfer.labels import NEGATIVE, POSITIVE
from lbzoo.transfer.probe import fit_probe, hold_out
from lbzoo.transfer.single_unit import best_single_unit

SPLITS = {"sst": ("train", "dev", "test"), "imdb": ("train", "test"), "amazon": ("train", "valid", "test")}
WANTED = {
    "sst": "train_binary_sent.csv, dev_binary_sent.csv and test_binary_sent.csv (header label,sentence)",
    "imdb": "train.tsv and test.tsv (or .tsv.xz, .tsv.gz; header label,id,rating,text), "
    "or the original layout of aclImdb (train/pos/*.txt, train/neg/*.txt, test/...)",
    "amazon": "amazon_reviews.jsonl (or .jsonl.xz, .jsonl.gz) with the fields title, text, label and split",
}
_ENDS_A_SENTENCE = ".!?:;,…"
_OPENERS: dict[str, Callable[..., Any]] = {"": open, ".xz": lzma.open, ".gz": gzip.open}


def review_text(title: str | None, text: str) -> str:
    """One text from a review's title and body, as the bundled checkpoints were trained and are measured.

    The title stands before the body as a sentence of its own: "Great fun. We play it every night". A title that
    already ends in punctuation gets a space only; an empty one, or one with which the body begins anyway (whole
    words, any case), is left out.
    """
    title, text = (title or "").strip(), text.strip()
    if not title or not text:
        return title or text
    start = text[: len(title)]
    if start.casefold() == title.casefold() and not text[len(title) : len(title) + 1].isalnum():
        return text
    return title + (" " if title[-1] in _ENDS_A_SENTENCE else ". ") + text


def read_task(task: str, folder: str | os.PathLike, split: str) -> tuple[list[str], list[str]]:
    """Texts and labels of one split of a task, in the order of the file.

    Args:
        task: "sst" (binary Stanford Sentiment Treebank, whole sentences), "imdb" (Maas et al. 2011) or
            "amazon" (product reviews; rows without a label are left out, texts are made by `review_text`).
        folder: where the files are; `WANTED[task]` names them.
        split: "train", "dev" (sst), "valid" (amazon; "dev" and "valid" mean the same) or "test".

    Returns:
        (texts, labels): two lists of equal length; labels are "negative" or "positive".

    Raises:
        ConfigError: an unknown task, or a split that the task does not have.
        TableError: folder, file or column missing, or a row that cannot be read; names file and row.
    """
    if task not in SPLITS:
        raise ConfigError(f"there is no task of this name. Received: {task!r}. Known: {', '.join(SPLITS)}.")
    wanted_split = {"dev": "valid", "valid": "dev"}.get(split, split) if split not in SPLITS[task] else split
    if wanted_split not in SPLITS[task]:
        raise ConfigError(f"{task} has the splits {', '.join(SPLITS[task])}. Received: split={split!r}.")
    folder = Path(folder)
    if not folder.is_dir():
        raise TableError(
            f"{task} is read from a folder. Received: {str(folder)!r}, no folder. Wanted in it: {WANTED[task]}."
        )
    rows = list(_READERS[task](folder, wanted_split))
    if not rows:
        raise TableError(f"no labelled row of {task} {wanted_split} in {str(folder)!r}. Wanted: {WANTED[task]}.")
    return [text for text, _ in rows], [label for _, label in rows]


def evaluate(classifier: Any, texts: Iterable[str], labels: Iterable[Any]) -> float:
    """Accuracy (0 to 1) of `classifier.predict(texts)` against `labels`, compared by name.

    Raises:
        ConfigError: no texts, or another number of labels than texts.
    """
    texts, labels = list(texts), list(labels)
    if not texts or len(texts) != len(labels):
        raise ConfigError(
            "accuracy needs a label for each text, and at least one. "
            f"Received: {len(texts)} texts, {len(labels)} labels."
        )
    predicted = classifier.predict(texts)
    return float(np.mean([a == b for a, b in zip(list(predicted), labels)]))


def frozen_probe_results(
    model: Any,
    task: str,
    folder: str | os.PathLike,
    *,
    state: str = "cell",
    pool: str | None = None,
    tanh: bool = False,
    batch_size: int = BATCH_SIZE,
) -> dict[str, Any]:
    """OpenAI's protocol on a task: features of the frozen model, an L1 probe, and the best single unit.

    C is chosen on the task's dev split; imdb has none, so a tenth of train (by class, seed 42) stands in for it.

    Args:
        model: a checkpoint's name or folder, or a model.
        task, folder: as for `read_task`.
        state, pool, tanh, batch_size: as for `FeatureExtractor`.

    Returns:
        dict with task, accuracy (test, percent), C, nonzero (weights), dev_accuracy (percent, at that C), rows
        {train, dev, test}, best_unit {unit, polarity, threshold, dev_accuracy, accuracy} (chosen on train), and
        probe (the fitted Probe).
    """
    texts, labels = {}, {}
    names = list(SPLITS[task]) if task in SPLITS else ["train"]
    for name in names:
        texts[name], labels[name] = read_task(task, folder, name)
    dev = "dev" if task == "imdb" else names[1]
    if task == "imdb":
        kept, held = hold_out(labels["train"])
        texts[dev], labels[dev] = _take(texts["train"], held), _take(labels["train"], held)
        texts["train"], labels["train"] = _take(texts["train"], kept), _take(labels["train"], kept)
    reader = prepare(model).reader(state, pool, tanh)
    features = {
        name: np.concatenate(list(reader.iter_read(texts[name], batch_size))) for name in ("train", dev, "test")
    }
    probe = fit_probe(
        features["train"], labels["train"], features[dev], labels[dev], state=state, pool=reader.pool, tanh=bool(tanh)
    )
    single = best_single_unit(features["train"], labels["train"])
    return {
        "task": task,
        "accuracy": 100 * probe.score(features["test"], labels["test"]),
        "C": probe.C,
        "nonzero": probe.nonzero,
        "dev_accuracy": 100 * probe.dev_accuracy[probe.C],
        "rows": {"train": len(labels["train"]), "dev": len(labels[dev]), "test": len(labels["test"])},
        "best_unit": {
            "unit": single.unit,
            "polarity": single.polarity,
            "threshold": single.threshold,
            "dev_accuracy": 100 * single.score(features[dev], labels[dev]),
            "accuracy": 100 * single.score(features["test"], labels["test"]),
        },
        "probe": probe,
    }


def _take(values: list, rows: np.ndarray) -> list:
    return [values[row] for row in rows]


def _read_sst(folder: Path, split: str) -> Iterator[tuple[str, str]]:
    path = folder / f"{split}_binary_sent.csv"
    if not path.is_file():
        raise _missing("sst", path)
    with Reading(path), open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        label, sentence = _columns(path, next(rows, []), ("label", "sentence"))
        for row in rows:
            if not row:
                continue
            if len(row) <= max(label, sentence):
                raise TableError(f"line {rows.line_num} of {str(path)!r} has {len(row)} cells only.")
            yield row[sentence], _label(row[label], path, rows.line_num)


def _read_imdb(folder: Path, split: str) -> Iterator[tuple[str, str]]:
    path = _first(folder, f"{split}.tsv")
    if path is None:
        for root in (folder / split, folder / "aclImdb" / split):
            if (root / "pos").is_dir() and (root / "neg").is_dir():
                yield from _read_aclimdb(root)
                return
        raise _missing("imdb", folder / f"{split}.tsv")
    # newline="\n": reviews hold U+0085 and the like, which must not end a row; quotes mean nothing in this file
    with Reading(path), _OPENERS[_packing(path)](path, "rt", encoding="utf-8-sig", newline="\n") as file:
        header = file.readline().rstrip("\r\n").split("\t")
        label, text = _columns(path, header, ("label", "text"))
        for number, line in enumerate(file, start=2):
            cells = line.rstrip("\r\n").split("\t")
            if len(cells) != len(header):
                raise TableError(
                    f"line {number} of {str(path)!r} has {len(cells)} cells; the header has {len(header)}."
                )
            yield cells[text], _label(cells[label], path, number)


def _read_aclimdb(root: Path) -> Iterator[tuple[str, str]]:
    for name, label in (("neg", NEGATIVE), ("pos", POSITIVE)):
        files = [path for path in (root / name).iterdir() if path.suffix == ".txt"]
        for path in sorted(
            files, key=lambda p: (not p.stem.split("_")[0].isdigit(), p.stem.split("_")[0].zfill(12), p.name)
        ):
            with Reading(path):
                yield path.read_bytes().decode("utf-8"), label


def _read_amazon(folder: Path, split: str) -> Iterator[tuple[str, str]]:
    path = _first(folder, "amazon_reviews.jsonl")
    if path is None:
        raise _missing("amazon", folder / "amazon_reviews.jsonl")
    with Reading(path), _OPENERS[_packing(path)](path, "rt", encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise TableError(f"line {number} of {str(path)!r} is not JSON: {error}.") from error
            absent = [key for key in ("title", "text", "label", "split") if not isinstance(row, dict) or key not in row]
            if absent:
                raise TableError(
                    f"line {number} of {str(path)!r} lacks {', '.join(absent)}. Wanted: {WANTED['amazon']}."
                )
            if row["split"] == split and row["label"] is not None:
                if not isinstance(row["text"], str) or not isinstance(row["title"] or "", str):
                    raise TableError(f"line {number} of {str(path)!r}: title and text must be strings.")
                yield review_text(row["title"], row["text"]), _label(row["label"], path, number)


_READERS = {"sst": _read_sst, "imdb": _read_imdb, "amazon": _read_amazon}
_LABELS = {"1": POSITIVE, "0": NEGATIVE, "pos": POSITIVE, "neg": NEGATIVE, "positive": POSITIVE, "negative": NEGATIVE}


def _label(value: Any, path: Path, number: int) -> str:
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise TableError(f"line {number} of {str(path)!r}: a label is 0, 1, neg or pos. Received: {value!r}.")
    return label


def _columns(path: Path, header: list[str], wanted: tuple[str, ...]) -> list[int]:
    missing = [name for name in wanted if name not in header]
    if missing:
        raise TableError(
            f"{str(path)!r} lacks the column {', '.join(missing)}. Received the header: {','.join(header)!r}."
        )
    return [header.index(name) for name in wanted]


def _first(folder: Path, name: str) -> Path | None:
    return next((folder / (name + packing) for packing in _OPENERS if (folder / (name + packing)).is_file()), None)


def _packing(path: Path) -> str:
    return path.suffix if path.suffix in (".xz", ".gz") else ""


def _missing(task: str, path: Path) -> TableError:
    return TableError(f"{task} is not in this folder: {str(path)!r} does not exist. Wanted: {WANTED[task]}.")


class Reading:
    """Turns what can go wrong while a file is read into one error that names the file."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, UnicodeDecodeError):
            raise TableError(f"{str(self.path)!r} is not UTF-8 text: {error}.") from error
        if isinstance(error, (lzma.LZMAError, zlib.error, EOFError, OSError, csv.Error)):
            raise TableError(f"{str(self.path)!r} cannot be read: {error}.") from error
