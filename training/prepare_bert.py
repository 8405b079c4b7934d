"""Text -> the token ids that BERT trains on, cut into sentences, with a vocabulary of its own or a given one.

    python -m training.prepare_bert --prepared runs/shards --output runs/tokens --vocab-size 8192
    python -m training.prepare_bert --input reviews.jsonl.gz more/ --output runs/tokens --vocab vocab.txt --cased
    python -m training.prepare_bert --data DATA --output runs/tokens --vocab-size 8192

`--prepared` names a folder that `training.prepare_reviews` or `training.prepare_sentiment` wrote. `--input` takes the
files, folders or pipe that prepare_reviews reads, and each of its options, and makes such a folder on the way. `--data`
takes the review sets (training/sources.py), once each and without phrases, Amazon's split "valid" held out: what
bert-mini-reviews was trained on. The vocabulary is learnt on the train split. The output (layout:
training/token_shards.py) is the same whatever the number of processes; it is written aside and renamed, so that a
half-written one never has the final name.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
from tqdm import tqdm

from lbzoo.console import import_tensorflow
from lbzoo.errors import ConfigError, LbzooError, TrainingError
from lbzoo.text.vocabulary import READINGS, Vocabulary, read_vocabulary
from lbzoo.text.wordpiece import WordPiece
from training import prepare_reviews
from training.documents import SPLITS
from training.learn_vocabulary import SAMPLE, count_words, learn
from training.sentences import sentences
from training.shards import INDEX, Shards, new_folder, open_shards, write_index
from training.token_shards import VOCABULARY, TokenWriter, dtype_for
from training.workers import Workers

VOCABULARY_SIZE = 30_522  # of the published uncased models
_TASK = 1 << 22  # bytes of text in one task


@dataclasses.dataclass(frozen=True)
class Task:
    """Documents `begin` to `end` of a split, the task `number` of it."""

    number: int
    folder: Path
    split: str
    begin: int
    end: int


def prepare(
    shards: Path,
    output: Path,
    vocabulary: Optional[Vocabulary] = None,
    size: int = VOCABULARY_SIZE,
    cased: bool = False,
    sample: int = SAMPLE,
    workers: int = 1,
) -> dict[str, Any]:
    """Write the folder of token ids `output`; returns its index.

    Args:
        shards: folder of texts, see training/shards.py.
        vocabulary: None to learn one of `size` rows on `sample` bytes of the train split.
        workers: processes that do the work, 1 for this one.

    Raises:
        TrainingError: `shards` is none or holds no text, or a worker was killed.
        ConfigError: no WordPiece reads text that was prepared in this way, or `output` is something else than a folder
            of shards.
        MissingPartError: tensorflow-text is not installed.
    """
    with new_folder(output) as folder:
        return _prepare(Path(shards), folder, vocabulary, size, cased, sample, workers)


def _prepare(
    shards: Path, folder: Path, vocabulary: Optional[Vocabulary], size: int, cased: bool, sample: int, workers: int
) -> dict[str, Any]:
    splits = _splits(shards)
    text = _reading(splits["train"].index.get("text_policy"), cased)
    learnt = vocabulary is None
    if vocabulary is None:
        documents = tqdm(splits["train"].documents(), desc="count words", unit="doc", disable=None)
        vocabulary = learn(count_words(documents, lowercase=not cased, sample=sample), size)
    (folder / VOCABULARY).write_bytes(vocabulary.to_bytes())
    index: dict[str, Any] = {
        "text": text,
        "dtype": dtype_for(vocabulary).name,
        "vocabulary": {"pieces": len(vocabulary), "learnt": learnt},
        "source": {name: split.index.get("sha256") for name, split in splits.items()},
        "splits": {},
    }
    with Workers(workers) as pool:
        for name, split in splits.items():
            with TokenWriter(folder / name, dtype_for(vocabulary)) as writer:
                for parts in _in_order(pool, _tasks(shards, name, split), vocabulary, text):
                    writer.add(*parts)
            index["splits"][name] = writer.counts
    if not index["splits"]["train"]["documents"]:
        raise TrainingError(
            f"{shards} holds no text to train on. Received: {splits['train'].index['documents']} texts."
        )
    write_index(folder, index)
    return index


def _splits(folder: Path) -> dict[str, Shards]:
    found = {"train": open_shards(folder, "train")}
    named = json.loads((folder / INDEX).read_text()).get("splits", ())
    return {**found, **{name: open_shards(folder, name) for name in SPLITS if name in named and name != "train"}}


def _reading(policy: Optional[str], cased: bool) -> str:
    for name, reading in READINGS.items():
        if reading == (not cased, policy):
            return name
    known = ", ".join(str(policy) for lowercase, policy in READINGS.values() if lowercase != cased)
    raise ConfigError(
        f"no {'cased' if cased else 'uncased'} WordPiece reads text prepared as {policy!r}. Known: {known}. Prepare "
        "the text again with another --text, or without --cased."
    )


def _tasks(folder: Path, name: str, split: Shards) -> Iterator[Task]:
    """Runs of documents of about _TASK bytes."""
    count = max(1, len(split.text) // _TASK)
    borders = np.searchsorted(split.offsets, np.linspace(0, len(split.text), count + 1)[1:-1])
    borders = np.unique([0, *borders, len(split.offsets) - 1]).tolist()
    for number, (begin, end) in enumerate(zip(borders[:-1], borders[1:])):
        yield Task(number, folder, name, begin, end)


def _in_order(pool: Workers, tasks: Iterable[Task], vocabulary: Vocabulary, text: str) -> Iterator[tuple]:
    """What `_tokenize` makes of each task, in the order of the tasks."""
    waiting: dict[int, tuple] = {}
    tasks = list(tasks)
    following = itertools.count()
    wanted = next(following)
    work = functools.partial(_tokenize, vocabulary=vocabulary, text=text)
    for number, parts in tqdm(pool.map(work, tasks), total=len(tasks), desc="tokenize", unit=" parts", disable=None):
        waiting[number] = parts
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted = next(following)


def _tokenize(task: Task, vocabulary: Vocabulary, text: str) -> tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(number, what `TokenWriter.add` takes) of a task."""
    shards = open_shards(task.folder, task.split)
    offsets = shards.offsets[task.begin : task.end + 1].tolist()
    found, owners = [], []
    for number, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        cut = sentences(shards.text[begin:end].tobytes().decode("utf-8", "replace"))
        found += cut
        owners += [number] * len(cut)
    pieces = _tokenizer(vocabulary, READINGS[text][0]).tokenize(found)
    counts = np.bincount(np.asarray(owners, np.int64)[pieces.lengths > 0], minlength=1)
    return task.number, (pieces.ids, pieces.lengths[pieces.lengths > 0], counts[counts > 0])


@functools.lru_cache(maxsize=1)
def _tokenizer(vocabulary: Vocabulary, lowercase: bool) -> WordPiece:
    return WordPiece(vocabulary, lowercase)


def write_reviews(data: Path, output: Path, seed: int = 1) -> None:
    """The documents of the review sets, labels left out, as a folder of texts with the splits "train" and "valid"."""
    from training.prepare_sentiment import write_shards
    from training.sources import amazon_text, training_documents

    documents = tqdm(training_documents(data), desc="read", unit="doc", disable=None)
    splits = {
        "train": [document for document in documents if document.source != "sst-phrase"],  # parts of the sentences
        "valid": list(amazon_text(data, "valid")),
    }
    output.mkdir()
    for name, found in splits.items():
        write_shards(found, output / name, seed, weights=None, note={})
    write_index(output, {"splits": list(splits)})


def summary(index: dict[str, Any]) -> str:
    """What was made, for people."""
    vocabulary = index["vocabulary"]
    lines = [f"{vocabulary['pieces']:,} pieces, {'learnt here' if vocabulary['learnt'] else 'given'}, {index['text']}"]
    for name, split in index["splits"].items():
        counts = (f"{split[kind]:>14,} {kind}" for kind in ("documents", "sentences", "tokens"))
        lines.append(f"{name:<6}{' '.join(counts)}")
    return "\n".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, 1 for an input or a setting that does not work, 130 when interrupted."""
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    if others and not options.input:
        parser.error(f"unknown arguments: {' '.join(others)} (options of prepare_reviews go with --input)")
    try:
        vocabulary = read_vocabulary(options.vocab) if options.vocab else None
        import_tensorflow()  # quietly, where nobody asked for its noise
        with new_folder(options.output) as folder:
            shards = options.prepared
            if options.input:
                shards = folder / "text"
                given = ["--input", *options.input, "--output", str(shards), *others]
                if prepare_reviews.main(given):
                    raise TrainingError("the input could not be prepared, see above. Received: exit status 1.")
            if options.data:
                shards = folder / "text"
                write_reviews(options.data, shards)
            index = _prepare(
                shards, folder, vocabulary, options.vocab_size, options.cased, options.sample, options.workers
            )
            shutil.rmtree(folder / "text", ignore_errors=True)
    except (LbzooError, OSError) as error:
        print(f"prepare_bert: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("prepare_bert: interrupted, nothing was written", file=sys.stderr)
        return 130
    print(summary(index))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prepared", type=Path, metavar="FOLDER", help="what prepare_reviews or prepare_sentiment wrote"
    )
    source.add_argument("--input", nargs="+", metavar="PATH", help="files, folders or -, as prepare_reviews takes them")
    source.add_argument("--data", type=Path, metavar="FOLDER", help="the review sets (no default)")
    add("--output", type=Path, required=True, metavar="FOLDER", help="replaced if it holds shards already")
    add("--vocab", type=Path, metavar="FILE", help="a vocabulary, in place of learning one")
    add("--vocab-size", type=int, default=VOCABULARY_SIZE, metavar="N", help="rows to learn (default: 30522)")
    add("--cased", action="store_true", help="keep case and accents")
    add("--sample", type=int, default=SAMPLE, metavar="BYTES", help="of text to learn from (default: 268435456)")
    add("--workers", type=int, default=1, metavar="N", help="processes (default: this one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
