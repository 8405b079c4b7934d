"""A few hundred made-up reviews, so that `--recipe tiny` runs without any data."""

from __future__ import annotations

import random
from pathlib import Path

from lbzoo.text.clean import encode
from training.sources import LABEL_SCORES, Document

_SUBJECTS = ("this camera", "the film", "the battery", "my new kettle", "the second season", "this book", "the sound")
_WORDS = {
    "positive": (
        "wonderful",
        "a joy to use",
        "well made",
        "worth every penny",
        "funny and warm",
        "better than I hoped",
    ),
    "negative": (
        "a waste of money",
        "broken on arrival",
        "dull",
        "far too loud",
        "badly written",
        "worse than the old one",
    ),
}
_CLOSERS = {"positive": ("Recommended!", "I bought a second one."), "negative": ("Avoid.", "I sent it back.")}


def documents(count: int = 400, seed: int = 7) -> list[Document]:
    """Made-up labelled reviews, the same for the same seed."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        label = rng.choice(sorted(_WORDS))
        praise = [f"{rng.choice(_SUBJECTS)} is {rng.choice(_WORDS[label])}" for _ in range(rng.randint(1, 4))]
        text = ". ".join(part[0].upper() + part[1:] for part in praise) + ". " + rng.choice(_CLOSERS[label])
        made.append(Document(encode(text, "reviews"), LABEL_SCORES[label], "made-up"))
    return made


def write(folder: Path) -> Path:
    """Write them as shards with a teacher fitted on them, unless they are there; returns the folder."""
    if not (folder / "index.json").exists():
        from training import teacher  # scikit-learn, which a run that goes on does without
        from training.prepare_sentiment import write_shards

        made = documents()
        weights, _ = teacher.fit(made)
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_shards(made, folder, seed=1, weights=weights, note={})
    return folder
