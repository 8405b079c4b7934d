"""Made-up reviews in every form that people keep them in, and what shards of them must hold."""

import bz2
import csv
import gzip
import hashlib
import io
import json
import lzma
import random

from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import review_text
from training.documents import SPLITS, Policy
from training.inputs import Fields
from training.prepare_reviews import prepare
from training.shards import open_shards

PACKING = {"": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def reviews(count, seed=0, longest=40):
    """Made-up (title, text) pairs, all different."""
    rng = random.Random(seed)
    words = ["good", "bad", "it's", "<3", "caf\u00e9", "&amp;", "why?", '"quoted"', "a,b", "tea;", "\U0001f600"]
    return [
        (" ".join(rng.choices(words, k=2)), f"number {i} " + " ".join(rng.choices(words, k=rng.randint(1, longest))))
        for i in range(count)
    ]


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def amazon(pairs):
    return jsonl({"reviewText": text, "summary": title, "overall": 5.0} for title, text in pairs)


def table(header, rows, delimiter=","):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def policy(seed=1, shards=(10, 2, 3), **fields):
    return Policy("reviews", Fields(**fields), seed, shards)


def make(folder, data, name="reviews.jsonl", chosen=None, **options):
    """Prepare `data` as one file; (output folder, its index)."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    options.setdefault("workers", 1)
    index = prepare([folder / name], folder / "out", chosen or policy(), **options)
    return folder / "out", index


def documents(output, *splits):
    return [text for split in splits or SPLITS for text in open_shards(output, split).documents()]


def fingerprint(output):
    """Every file of a folder, by name and hash."""
    return {
        path.relative_to(output).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in output.rglob("*")
        if path.is_file()
    }


def expected(pairs, text="reviews"):
    return sorted(encode(review_text(*pair), text) for pair in pairs)


# what becomes of a row
