"""The BERT that ships: what it puts into sentences of reviews makes sense, offline and by the command."""

import csv
import io

from lbzoo.manifest import BundledSource
from lbzoo.registry import BUNDLED, MASKED_LM_MODEL, entries

SENTENCES = (
    "This camera is really [MASK].",
    "The sound of these headphones is [MASK].",
    "This book was very [MASK].",
    "The battery is pretty [MASK].",
    "I think this movie is [MASK].",
    "These shoes are so [MASK].",
)
TOP, WANTED_WORDS, WANTED_SENTENCES = 5, 3, 4


def test_most_of_the_first_words_are_sensible_adjectives(run, root, tmp_path, monkeypatch):
    monkeypatch.setenv("LBZOO_CACHE", str(tmp_path))  # nothing cached: it comes with the package
    adjectives = set((root / "tests" / "adjectives.txt").read_text().split())
    status, out, err = run("fill-mask", *SENTENCES, "--model", "bert-mini-reviews")
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    words = {sentence: [row["piece"] for row in rows if row["text"] == sentence] for sentence in SENTENCES}
    assert all(len(found) == TOP for found in words.values())
    sensible = [len(adjectives.intersection(found)) >= WANTED_WORDS for found in words.values()]
    assert sum(sensible) >= WANTED_SENTENCES, words


def test_what_fills_masks_by_default_ships():
    assert any(entry.name == MASKED_LM_MODEL and BundledSource() in entry.sources for entry in entries())


def test_all_that_ships_is_below_60_megabytes():
    assert sum(path.stat().st_size for path in BUNDLED.rglob("*") if path.is_file()) < 60e6
