"""The review sets of the data folder as documents: what the bundled mLSTM checkpoints are trained on.

No document of a test, dev or valid split comes out of `training_documents`, nor a text that stands in one of them.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import lzma
import re
from pathlib import Path
from typing import Iterator, Optional

from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import NEGATIVE, POSITIVE, Reading, read_task, review_text

IMDB_HELD_OUT = 0.04  # share of IMDB train that is never trained on: the dev set of IMDB
# log-odds that stand for a label: five classes of the treebank, and two of a review
TREE_SCORES = (-4.0, -2.0, 0.0, 2.0, 4.0)
LABEL_SCORES = {NEGATIVE: -4.0, POSITIVE: 4.0}


@dataclasses.dataclass(frozen=True)
class Document:
    """One text as the model's bytes, with the log-odds of being positive where somebody labelled it."""

    text: bytes
    score: Optional[float]
    source: str


def share(text: bytes) -> float:
    """A number in [0, 1) that depends on the text alone: the same split on every machine."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") / 2**64


def imdb_split(data: Path) -> tuple[list[Document], list[Document]]:
    """IMDB train as (documents to train on, documents held out)."""
    texts, labels = read_task("imdb", data / "imdb", "train")
    documents = [Document(encode(t, "reviews"), LABEL_SCORES[y], "imdb-train") for t, y in zip(texts, labels)]
    kept = [d for d in documents if share(d.text) >= IMDB_HELD_OUT]
    return kept, [d for d in documents if share(d.text) < IMDB_HELD_OUT]


def training_documents(data: Path) -> Iterator[Document]:
    """Every document of the training splits, exact duplicates and texts of the held-out splits left out."""
    imdb, imdb_held = imdb_split(data)
    seen = {_key(d.text) for d in imdb_held}
    for task, split in (("imdb", "test"), ("sst", "dev"), ("sst", "test")):
        seen |= {_key(encode(text, "reviews")) for text in read_task(task, data / task_folder(task), split)[0]}
    seen |= {_key(document.text) for document in _amazon(data, "valid", "test")}
    sources = (imdb, _amazon(data, "train"), _sst_sentences(data), _sst_phrases(data), _imdb_unlabelled(data))
    for source in sources:
        for document in source:
            key = _key(document.text)
            if key not in seen:
                seen.add(key)
                yield document


def task_folder(task: str) -> str:
    """Where the data folder keeps a task."""
    return "sst2_sentence" if task == "sst" else task


def amazon_text(data: Path, split: str) -> Iterator[Document]:
    """Every Amazon review of a split, labelled or not: what bits per character are measured on."""
    return _amazon(data, split)


def _key(text: bytes) -> bytes:
    return hashlib.sha256(b" ".join(text.lower().split())).digest()


def _amazon(data: Path, *splits: str) -> Iterator[Document]:
    path = data / "amazon" / "amazon_reviews.jsonl.xz"
    with Reading(path), lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["split"] in splits:
                score = {0: -4.0, 1: 4.0}.get(row["label"])
                yield Document(encode(review_text(row["title"], row["text"]), "reviews"), score, "amazon")


def _imdb_unlabelled(data: Path) -> Iterator[Document]:
    path = data / "imdb" / "unsup.tsv.xz"
    with Reading(path), lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        column = next(lines).rstrip("\n").split("\t").index("text")
        for line in lines:
            yield Document(encode(line.rstrip("\n").split("\t")[column], "reviews"), None, "imdb-unlabelled")


def _sst_sentences(data: Path) -> Iterator[Document]:
    texts, labels = read_task("sst", data / "sst2_sentence", "train")
    for text, label in zip(texts, labels):
        yield Document(encode(text, "reviews"), LABEL_SCORES[label], "sst-sentence")


def _sst_phrases(data: Path) -> Iterator[Document]:
    """Every phrase of two words or more in the training trees, written as people write."""
    with gzip.open(data / "sst_trees" / "train.txt.gz", "rt", encoding="utf-8") as trees:
        for tree in trees:
            for label, words in phrases(tree):
                if len(words) > 1:
                    text = untokenize(words)
                    yield Document(encode(text, "reviews"), TREE_SCORES[label], "sst-phrase")


def phrases(tree: str) -> Iterator[tuple[int, list[str]]]:
    """(class, words) of every node of a tree such as "(3 (2 so) (3 good))", inner nodes first."""
    open_nodes: list[tuple[int, list[str]]] = []
    for bracket, label, word in _tokens(tree):
        if bracket == "(":
            open_nodes.append((int(label), []))
        elif word:
            open_nodes[-1][1].append(word)
        else:
            node = open_nodes.pop()
            if open_nodes:
                open_nodes[-1][1].extend(node[1])
            yield node


def _tokens(tree: str) -> Iterator[tuple[str, str, str]]:
    for match in re.finditer(r"\((\d) |([^()\s]+)(?=\))|\)", tree):
        if match.group(1):
            yield "(", match.group(1), ""
        else:
            yield "", "", match.group(2) or ""


_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"', "-LSB-": "[", "-RSB-": "]"}


def untokenize(words: list[str]) -> str:
    """Treebank words -> a sentence as people write it: no space before punctuation, "ca n't" -> "can't"."""
    text = " ".join(_BRACKETS.get(word, word.replace("\\/", "/").replace("\\*", "*")) for word in words)
    text = re.sub(r" (n't|'s|'re|'ve|'ll|'d|'m)\b", r"\1", text)
    text = re.sub(r" ([.,;:!?)\]%]|\.\.\.|')", r"\1", text)
    text = re.sub(r"([(\[$]) ", r"\1", text)
    return re.sub(r'" ([^"]*?) ?"', r'"\1"', text)
