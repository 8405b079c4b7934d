"""The review sets -> text to train on with the teacher's opinion of every byte: what made the bundled mLSTMs.

    python -m training.prepare_sentiment --data DATA --output runs/reviews
    python -m training.prepare_sentiment --data DATA --output runs/negations --made-negations 24000
    python -m training.prepare_sentiment --data DATA --output runs/own --made-negations 24000 --own mlstm-1024-reviews \
        --repeat imdb-train=0.7 imdb-unlabelled=0.12 sst-sentence=4 sst-phrase=1.5 made-negation=4

The documents of the data folder (see training/sources.py), shuffled by seed, each with the teacher's score after
every byte, as one folder of training/shards.py with target.bin. It is written aside and renamed: a half-written one
never has the final name. With --own a checkpoint teaches in place of the bag of words where it is the better judge
(training/earlier_self.py). Text of one's own, without a teacher: training/prepare_reviews.py.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import sys
from pathlib import Path
from typing import Mapping, Optional, Sequence

import numpy as np
from tqdm import tqdm

from lbzoo.errors import LbzooError
from lbzoo.loading import checkpoint_folder
from training import earlier_self, made_negations, teacher
from training.shards import INDEX, new_folder, write_index
from training.sources import Document, share, training_documents

# How often a source's documents are repeated in one pass (below 1: the share of its documents that is used).
REPEATS = {
    "sst-sentence": 6,
    "sst-phrase": 3,
    "amazon": 1,
    "imdb-train": 1,
    "imdb-unlabelled": 0.25,
    made_negations.SOURCE: 5,
}
# What --own scores: the texts that a bag of words judges worst, and a text without a label for both to judge together.
OWN_SOURCES = ("sst-sentence", "sst-phrase", "imdb-unlabelled", made_negations.SOURCE)


def write_shards(
    documents: Sequence[Document],
    output: Path,
    seed: int,
    weights: Optional[dict[bytes, float]],
    note: dict,
    own: Optional[Mapping[bytes, np.ndarray]] = None,
) -> None:
    """Write documents in seeded order; with teacher weights also the target of every byte, see `target`.

    Raises ConfigError where `output` is something else than a folder of shards.
    """
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(documents))
    with new_folder(output) as folder:
        offsets, hashes = _write(folder, [documents[i] for i in order], weights, own or {})
        np.save(folder / "offsets.npy", np.asarray(offsets, np.int64))
        index = {
            "documents": len(documents),
            "bytes": offsets[-1],
            "sources": dict(sorted(collections.Counter(d.source for d in documents).items())),
            "text_policy": "reviews",
            "seed": seed,
            "sha256": hashes,
            **note,
        }
        write_index(folder, index)


def target(document: Document, weights: Mapping[bytes, float], own: Mapping[bytes, np.ndarray]) -> np.ndarray:
    """What the read-out is to say after every byte: float16 [bytes of the document].

    The running score of the bag of words; of the earlier checkpoint, where `own` has it; the mean of both where nobody
    labelled the text. It ends at the label, where there is one.
    """
    if document.text not in own:
        return teacher.running_score(document.text, weights, document.score)
    score = own[document.text].astype(np.float32)
    if document.score is None:
        score = (score + teacher.running_score(document.text, weights)) / 2
    return teacher.bent(score, document.score)


def own_scores(documents: Sequence[Document], model: str, sources: Sequence[str]) -> dict[bytes, np.ndarray]:
    """The running score of checkpoint `model` on every text of these sources."""
    texts = sorted({d.text for d in documents if d.source in sources})
    return dict(zip(texts, earlier_self.running_scores(model, texts)))


def _write(
    folder: Path,
    documents: Sequence[Document],
    weights: Optional[Mapping[bytes, float]],
    own: Mapping[bytes, np.ndarray],
) -> tuple[list[int], dict[str, str]]:
    offsets, hashes = [0], {"text.bin": hashlib.sha256(), "target.bin": hashlib.sha256()}
    with open(folder / "text.bin", "wb") as text_file, open(folder / "target.bin", "wb") as target_file:
        for document in tqdm(documents, unit="doc", desc="write", disable=None):
            text_file.write(document.text)
            hashes["text.bin"].update(document.text)
            offsets.append(offsets[-1] + len(document.text))
            if weights is not None:
                scores = target(document, weights, own).tobytes()
                target_file.write(scores)
                hashes["target.bin"].update(scores)
    return offsets, {name: digest.hexdigest() for name, digest in hashes.items()}


def repeated(documents: Sequence[Document], repeats: dict[str, float]) -> list[Document]:
    """Each document as often as its source is repeated; a share below 1 is chosen by the text alone."""
    chosen = []
    for document in documents:
        times = repeats.get(document.source, 1)
        whole = int(times)
        chosen.extend([document] * (whole + (share(document.text) < times - whole)))
    return chosen


def _repeat(text: str) -> tuple[str, float]:
    source, _, times = text.partition("=")
    if source not in REPEATS:
        raise argparse.ArgumentTypeError(f"no such source: {source!r}. Known: {', '.join(REPEATS)}")
    try:
        number = float(times)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"SOURCE=TIMES, times a number of at least 0. Received: {text!r}")
    return source, number


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where the data or the output is not what it has to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the review sets")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--made-negations", type=int, default=0, metavar="N", help="add N sentences of training/made_negations.py"
    )
    parser.add_argument(
        "--own", metavar="MODEL", help=f"name or folder of a checkpoint that scores {', '.join(OWN_SOURCES)}"
    )
    parser.add_argument(
        "--repeat",
        nargs="+",
        default=[],
        type=_repeat,
        metavar="SOURCE=TIMES",
        help=f"instead of {' '.join(f'{name}={times:g}' for name, times in REPEATS.items())}",
    )
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("--data FOLDER, or LBZOO_DATA, says where the review sets are")
    try:
        if options.own:
            checkpoint_folder(options.own)  # a wrong name is told before the minutes of reading
        documents = list(tqdm(training_documents(options.data), unit="doc", desc="read", disable=None))
        weights, intercept = teacher.fit(documents)
        documents += made_negations.documents(options.made_negations, options.seed)
        repeats = {**REPEATS, **dict(options.repeat)}
        documents = repeated(documents, repeats)
        own = own_scores(documents, options.own, OWN_SOURCES) if options.own else {}
        note = {"repeats": repeats, "teacher": {"features": len(weights), "intercept": intercept, "own": options.own}}
        write_shards(documents, options.output, options.seed, weights, note, own)
    except (LbzooError, OSError) as error:
        print(f"prepare_sentiment: error: {error}", file=sys.stderr)
        return 1
    print((options.output / INDEX).read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
