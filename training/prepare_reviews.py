"""Raw reviews -> a folder of bytes that training reads: text.bin, target.bin, offsets.npy, index.json.

    python -m training.prepare_reviews --data DATA --output runs/reviews

The documents of the data folder (see training/sources.py), shuffled by seed, each with the teacher's score after
every byte. The folder is written aside and renamed: a half-written one never has the final name.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Optional, Sequence

import numpy as np
from tqdm import tqdm

from training import teacher
from training.sources import Document, share, training_documents

# How often a source's documents are repeated in one pass (below 1: the share of its documents that is used).
REPEATS = {"sst-sentence": 6, "sst-phrase": 3, "amazon": 1, "imdb-train": 1, "imdb-unlabelled": 0.25}


def write_shards(
    documents: Sequence[Document], output: Path, seed: int, weights: Optional[dict[bytes, float]], note: dict
) -> None:
    """Write documents in seeded order; with teacher weights also the target of every byte."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(documents))
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    offsets, hashes = [0], {"text.bin": hashlib.sha256(), "target.bin": hashlib.sha256()}
    with open(aside / "text.bin", "wb") as text_file, open(aside / "target.bin", "wb") as target_file:
        for document in tqdm((documents[i] for i in order), total=len(order), unit="doc", desc="write", disable=None):
            text_file.write(document.text)
            hashes["text.bin"].update(document.text)
            offsets.append(offsets[-1] + len(document.text))
            if weights is not None:
                target = teacher.running_score(document.text, weights, document.score).tobytes()
                target_file.write(target)
                hashes["target.bin"].update(target)
    np.save(aside / "offsets.npy", np.asarray(offsets, np.int64))
    counts = collections.Counter(d.source for d in documents)
    index = {
        "documents": len(documents),
        "bytes": offsets[-1],
        "sources": dict(sorted(counts.items())),
        "text_policy": "reviews",
        "seed": seed,
        "sha256": {name: h.hexdigest() for name, h in hashes.items()},
        **note,
    }
    (aside / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    aside.rename(output)


def repeated(documents: Sequence[Document], repeats: dict[str, float]) -> list[Document]:
    """Each document as often as its source is repeated; a share below 1 is chosen by the text alone."""
    chosen = []
    for document in documents:
        times = repeats.get(document.source, 1)
        whole = int(times)
        chosen.extend([document] * (whole + (share(document.text) < times - whole)))
    return chosen


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the review sets")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("--data FOLDER, or LBZOO_DATA, says where the review sets are")
    documents = list(tqdm(training_documents(options.data), unit="doc", desc="read", disable=None))
    weights, intercept = teacher.fit(documents)
    note = {"repeats": REPEATS, "teacher": {"features": len(weights), "intercept": intercept}}
    write_shards(repeated(documents, REPEATS), options.output, options.seed, weights, note)
    print((options.output / "index.json").read_text())


if __name__ == "__main__":
    main()
