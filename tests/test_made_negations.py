"""Made-up sentences in which a turn such as "not" decides."""

from __future__ import annotations

import collections

import pytest

from lbzoo.errors import ConfigError
from lbzoo.transfer.labels import NEGATIVE, POSITIVE
from training import made_negations
from training.negation import read_pairs
from training.sources import LABEL_SCORES


@pytest.fixture(scope="module")
def sentences():
    return list(made_negations.sentences(6_000, seed=1))


def test_praise_and_complaint_are_equally_many_and_no_sentence_comes_twice(sentences):
    assert collections.Counter(label for _, label in sentences) == {POSITIVE: 3_000, NEGATIVE: 3_000}
    assert len({text for text, _ in sentences}) == 6_000
    assert not any("{" in text or "}" in text for text, _ in sentences)


def test_a_seed_is_one_list_and_a_longer_list_begins_with_a_shorter_one(sentences):
    assert list(made_negations.sentences(500, seed=1)) == sentences[:500]
    assert list(made_negations.sentences(500, seed=2)) != sentences[:500]


def test_none_of_them_is_among_the_pairs_that_measure_negation(sentences):
    pairs = {text.lower() for pair in read_pairs() for text in (pair.plain, pair.negated)}
    assert not pairs & {text.lower() for text, _ in sentences}


def test_the_turn_decides_the_label(sentences):
    labels = {text.lower(): label for text, label in sentences}
    checked = 0
    for topic in made_negations.TOPICS:
        for side, label in ((topic.good, POSITIVE), (topic.bad, NEGATIVE)):
            other = NEGATIVE if label == POSITIVE else POSITIVE
            for thing in topic.things:
                for word in side:
                    for turn, expected in (("is", label), ("is not", other), ("is far from", other)):
                        found = labels.get(f"the {thing} {turn} {word}.".lower())
                        assert found in (None, expected)
                        checked += found is not None
    assert checked > 150


def test_documents_carry_the_score_of_their_label():
    for document, (_, label) in zip(made_negations.documents(50, seed=3), made_negations.sentences(50, seed=3)):
        assert document.score == LABEL_SCORES[label] and document.source == made_negations.SOURCE


@pytest.mark.parametrize("number", [-1, made_negations.MOST + 1])
def test_more_than_the_lists_are_good_for_is_refused(number):
    with pytest.raises(ConfigError, match="0 to 30000"):
        list(made_negations.sentences(number, seed=1))


def test_the_most_can_be_made():
    assert sum(1 for _ in made_negations.sentences(made_negations.MOST, seed=1)) == made_negations.MOST
