"""The review sets -> text to train on with the teacher's opinion of every byte: what made the bundled mLSTMs.

    python -m training.prepare_sentiment --data DATA --output runs/reviews
    python -m training.prepare_sentiment --data DATA --output runs/negations --made-negations 24000

The documents of the data folder (see training/sources.py), shuffled by seed, each with the teacher's score after
every byte, as one folder of training/shards.py with target.bin. It is written aside and renamed: a half-written one
never has the final name. Text of one's own, without a teacher: training/prepare_reviews.py.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

import numpy as np
from tqdm import tqdm

from lbzoo.errors import LbzooError
from training import made_negations, teacher
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


def write_shards(
    documents: Sequence[Document], output: Path, seed: int, weights: Optional[dict[bytes, float]], note: dict
) -> None:
    """Write documents in seeded order; with teacher weights also the target of every byte.

    Raises ConfigError where `output` is something else than a folder of shards.
    """
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(documents))
    with new_folder(output) as folder:
        offsets, hashes = _write(folder, [documents[i] for i in order], weights)
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


def _write(
    folder: Path, documents: Sequence[Document], weights: Optional[dict[bytes, float]]
) -> tuple[list[int], dict[str, str]]:
    offsets, hashes = [0], {"text.bin": hashlib.sha256(), "target.bin": hashlib.sha256()}
    with open(folder / "text.bin", "wb") as text_file, open(folder / "target.bin", "wb") as target_file:
        for document in tqdm(documents, unit="doc", desc="write", disable=None):
            text_file.write(document.text)
            hashes["text.bin"].update(document.text)
            offsets.append(offsets[-1] + len(document.text))
            if weights is not None:
                target = teacher.running_score(document.text, weights, document.score).tobytes()
                target_file.write(target)
                hashes["target.bin"].update(target)
    return offsets, {name: digest.hexdigest() for name, digest in hashes.items()}


def repeated(documents: Sequence[Document], repeats: dict[str, float]) -> list[Document]:
    """Each document as often as its source is repeated; a share below 1 is chosen by the text alone."""
    chosen = []
    for document in documents:
        times = repeats.get(document.source, 1)
        whole = int(times)
        chosen.extend([document] * (whole + (share(document.text) < times - whole)))
    return chosen


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where the data or the output is not what it has to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the review sets")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--made-negations", type=int, default=0, metavar="N", help="add N sentences of training/made_negations.py"
    )
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("--data FOLDER, or LBZOO_DATA, says where the review sets are")
    try:
        documents = list(tqdm(training_documents(options.data), unit="doc", desc="read", disable=None))
        weights, intercept = teacher.fit(documents)
        documents += made_negations.documents(options.made_negations, options.seed)
        note = {"repeats": REPEATS, "teacher": {"features": len(weights), "intercept": intercept}}
        write_shards(repeated(documents, REPEATS), options.output, options.seed, weights, note)
    except (LbzooError, OSError) as error:
        print(f"prepare_sentiment: error: {error}", file=sys.stderr)
        return 1
    print((options.output / INDEX).read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
