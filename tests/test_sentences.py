"""Where a sentence of a review ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.sentences import sentences


@pytest.mark.parametrize(
    "text",
    [
        "I love it!| Really?|  Works well.| the best",
        "Worst ever... i hated it.| Fine...| But no",
        "Worst ever...| I hated it",
        "Mr. Smith and Dr. Jones came.| J. Smith paid $3.50 for 5.5 stars, e.g. this one, i.e. that.",
        "So do I.| Then no.| Thanks",
        "Cables, etc. and more, etc.| It works",
        'He said "Good."| And (really.)| Then',
        "He left.|The end!|It was (fine).|Buy it.com or not",
        "No. 1 of all, no.| Not that",
        "no marks at all",
        "Fine !| Works .| Yes",
        "Schön\u2026 und gut.| “So.”| Über",
    ],
)
def test_a_sentence_ends_where_readers_stop(text):
    assert sentences(text.replace("|", "")) == [part.strip() for part in text.split("|")]


@given(st.text(alphabet='ab AB.!?…" ', max_size=40))
def test_nothing_is_lost_but_white_space(text):
    found = sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in found)
