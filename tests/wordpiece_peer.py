"""WordPiece beside the `tokenizers` library on whole data sets: `python -m tests.wordpiece_peer imdb sst glue`.

Compares ids and offsets of every text, cased and uncased, and of GLUE's pairs also cut to 128 tokens. Prints what
differs; exit status 1 if anything does.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import lzma
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers

from lbzoo.text.vocabulary import Vocabulary, read_vocabulary
from lbzoo.text.wordpiece import WordPiece

BATCH = 512
PAIRS = (("sentence1", "sentence2"), ("question", "sentence"), ("#1 String", "#2 String"), ("premise", "hypothesis"))


def peer(vocabulary: Vocabulary, lowercase: bool) -> tokenizers.BertWordPieceTokenizer:
    """The same tokenizer of the other library."""
    return tokenizers.BertWordPieceTokenizer(dict(vocabulary.ids), lowercase=lowercase, strip_accents=lowercase)


def differences(ours: WordPiece, theirs, texts: list[str], pairs=None, max_length: int = 1 << 20) -> list[str]:
    """The texts on which ids, segments or offsets differ."""
    found = []
    encoded = ours.encode(texts, pairs, max_length=max_length, offsets=True)
    theirs.enable_truncation(max_length)
    inputs = texts if pairs is None else list(zip(texts, pairs))
    for row, (text, other) in enumerate(zip(inputs, theirs.encode_batch(inputs))):
        here = slice(encoded.splits[row], encoded.splits[row + 1])
        offsets = list(zip(encoded.begins[here].tolist(), encoded.ends[here].tolist()))
        offsets = [(0, 0) if pair == (-1, -1) else pair for pair in offsets]  # where the special tokens stand
        mine = (encoded.ids[here].tolist(), encoded.segments[here].tolist(), offsets)
        if mine != (other.ids, other.type_ids, other.offsets):
            found.append(text)
    return found


def imdb(data: Path) -> Iterator[str]:
    """Every review."""
    for split in ("train", "test", "unsup"):
        with lzma.open(data / "imdb" / f"{split}.tsv.xz", "rt", encoding="utf-8", newline="\n") as lines:
            column = next(lines).rstrip("\n").split("\t").index("text")
            yield from (line.rstrip("\n").split("\t")[column] for line in lines)


def sst(data: Path) -> Iterator[str]:
    """Every sentence, and the words of every tree."""
    for path in sorted((data / "sst2_sentence").glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as file:
            yield from (row["sentence"] for row in csv.DictReader(file))
    for path in sorted((data / "sst_trees").glob("*.txt.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as trees:
            yield from (" ".join(word.strip("()") for word in tree.split() if word.endswith(")")) for tree in trees)


def _tables(data: Path) -> Iterator[list[list[str]]]:
    for path in sorted((data / "glue").rglob("*.tsv.gz")):
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
            yield [line.rstrip("\r\n").split("\t") for line in lines]


def glue(data: Path) -> Iterator[str]:
    """Every cell that holds more than one word."""
    for table in _tables(data):
        yield from (cell for row in table for cell in row if " " in cell)


def glue_pairs(data: Path) -> Iterator[tuple[str, str]]:
    """Every pair of texts."""
    for header, *rows in _tables(data):
        for names in PAIRS:
            if set(names) <= set(header):
                places = [header.index(name) for name in names]
                yield from (tuple(row[p] for p in places) for row in rows if len(row) > max(places))


SETS = {"imdb": imdb, "sst": sst, "glue": glue}


def compare(texts: Iterable[str], vocabulary: Vocabulary, lowercase: bool) -> tuple[int, list[str]]:
    """(texts, those that differ)."""
    ours, theirs = WordPiece(vocabulary, lowercase), peer(vocabulary, lowercase)
    count, found = 0, []
    for batch in _batches(texts):
        count += len(batch)
        found += differences(ours, theirs, batch)
    return count, found


def compare_pairs(pairs: Iterable[tuple[str, str]], vocabulary: Vocabulary, lowercase: bool) -> tuple[int, list[str]]:
    """(pairs, those that differ, whole or cut to 128 or 41 tokens)."""
    ours, theirs = WordPiece(vocabulary, lowercase), peer(vocabulary, lowercase)
    count, found = 0, []
    for batch in _batches(pairs):
        count += len(batch)
        first, second = map(list, zip(*batch))
        for max_length in (1 << 20, 128, 41):
            found += differences(ours, theirs, first, second, max_length)
    return count, found


def _batches(items: Iterable) -> Iterator[list]:
    items = iter(items)
    while batch := list(itertools.islice(items, BATCH)):
        yield batch


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the data sets")
    parser.add_argument("sets", nargs="+", choices=list(SETS))
    options = parser.parse_args()
    vocabulary, different = read_vocabulary(options.data / "bert" / "vocab.txt"), 0
    for name, lowercase in itertools.product(options.sets, (True, False)):
        runs = [(name, compare(SETS[name](options.data), vocabulary, lowercase))]
        if name == "glue":
            runs.append(("glue pairs", compare_pairs(glue_pairs(options.data), vocabulary, lowercase)))
        for label, (count, found) in runs:
            kind = "uncased" if lowercase else "cased"
            print(
                f"{label}, {kind}: {count:,} texts, {len(found)} differ", *map(repr, found[:5]), sep="\n  ", flush=True
            )
            different += len(found)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
