"""The negation pairs as a file, and what is counted right of them."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pytest

from lbzoo.errors import ConfigError
from lbzoo.text.clean import encode
from lbzoo.transfer.labels import NEGATIVE, POSITIVE
from training import negation, sample_reviews, teacher
from training.negation import (
    ALL,
    COMPLAINT,
    PRAISE,
    Pair,
    Shares,
    classifier_scores,
    read_pairs,
    sentences,
    shares_by_kind,
)

LABELS = {NEGATIVE, POSITIVE}
SAME_SENSE = "not only, but"


@pytest.fixture(scope="module")
def pairs():
    return read_pairs()


def made(kind: str, plain_label: str, negated_label: str) -> Pair:
    return Pair(kind, f"{kind} plain", plain_label, f"{kind} negated", negated_label)


def test_there_are_two_hundred_pairs_and_no_sentence_stands_twice(pairs):
    assert len(pairs) == 200
    assert len({" ".join(text.lower().split()) for text in sentences(pairs)}) == 400


def test_every_line_of_the_file_is_one_pair():
    lines = negation.PAIRS.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 201
    assert {line.count("\t") for line in lines} == {4}
    assert all(line == line.strip() for line in lines)


def test_labels_are_known_and_turn_everywhere_but_in_the_trap(pairs):
    assert {label for pair in pairs for label in (pair.plain_label, pair.negated_label)} == LABELS
    assert {pair.kind for pair in pairs if pair.plain_label == pair.negated_label} == {SAME_SENSE}
    assert all(pair.plain_label == pair.negated_label for pair in pairs if pair.kind == SAME_SENSE)


def test_praise_and_complaint_are_negated_equally_often_in_every_kind(pairs):
    kinds = Counter(pair.kind for pair in pairs)
    for column in ("plain_label", "negated_label"):
        counted = Counter((pair.kind, getattr(pair, column)) for pair in pairs)
        assert counted == {(kind, label): number / 2 for kind, number in kinds.items() for label in LABELS}
    assert min(kinds.values()) >= 10


def test_kinds_stand_together_and_sentences_are_of_various_lengths(pairs):
    kinds = [pair.kind for pair in pairs]
    assert kinds == sorted(kinds, key=kinds.index)
    lengths = [len(text.split()) for text in sentences(pairs)]
    assert min(lengths) == 3 and 20 < max(lengths) <= 30


def test_a_pair_is_right_only_where_both_labels_are():
    pairs = [made("not", POSITIVE, NEGATIVE)] * 4
    scores = [2, -1, 2, 1, -2, -1, -2, 1]  # both; the plain one; the negated one; neither
    assert shares_by_kind(pairs, scores)["not"] == Shares(4, plain=50.0, negated=50.0, both=25.0, order=50.0)


def test_order_compares_the_positive_sentence_with_the_negative_one():
    pairs = [made("not", POSITIVE, NEGATIVE), made("not", NEGATIVE, POSITIVE)]
    assert shares_by_kind(pairs, [9, 8, -9, -8])["not"] == Shares(2, 100.0, 0.0, 0.0, order=100.0)
    assert shares_by_kind(pairs, [8, 9, -8, -9])["not"].order == 0.0
    assert shares_by_kind(pairs, [1, 1, 0, 0])["not"].order == 0.0  # a draw is no order


def test_sentences_of_one_sense_count_for_labels_and_not_for_order():
    pairs = [made("trap", POSITIVE, POSITIVE), made("not", NEGATIVE, POSITIVE)]
    found = shares_by_kind(pairs, [1, 2, -1, -2])
    assert list(found) == ["trap", "not", COMPLAINT, ALL]
    assert found["trap"] == Shares(1, 100.0, 100.0, 100.0, order=None)
    assert found[ALL] == Shares(2, 100.0, 50.0, 50.0, order=0.0)


def test_praise_and_complaint_are_told_apart_by_the_plain_sentence():
    pairs = [made("not", POSITIVE, NEGATIVE), made("never", NEGATIVE, POSITIVE), made("never", NEGATIVE, POSITIVE)]
    found = shares_by_kind(pairs, [1, -1, -1, -2, -1, 1])  # a denied complaint is taken for a complaint once
    assert found[PRAISE] == Shares(1, 100.0, 100.0, 100.0, 100.0)
    assert found[COMPLAINT] == Shares(2, 100.0, 50.0, 50.0, 50.0)


def test_scores_for_other_pairs_are_refused(pairs):
    with pytest.raises(ValueError, match="2 scores for 200 pairs"):
        shares_by_kind(pairs, [1.0, 2.0])


def test_right_scores_get_everything_right(pairs):
    labels = [label for pair in pairs for label in (pair.plain_label, pair.negated_label)]
    found = shares_by_kind(pairs, [1.0 if label == POSITIVE else -1.0 for label in labels])
    assert {shares.both for shares in found.values()} == {100.0}
    assert {kind: shares.order for kind, shares in found.items() if shares.order != 100.0} == {SAME_SENSE: None}
    assert sum(found[kind].pairs for kind in {pair.kind for pair in pairs}) == found[ALL].pairs == 200
    assert found[PRAISE].pairs == found[COMPLAINT].pairs == 95


class Answers:
    def __init__(self, *classes):
        self.classes_ = np.array(classes)

    def decision_function(self, texts):
        return np.arange(len(texts), dtype=np.float32)


def test_a_score_above_zero_is_positive_whatever_the_order_of_the_classes():
    assert classifier_scores(Answers(NEGATIVE, POSITIVE), ["a", "b"]).tolist() == [0, 1]
    assert classifier_scores(Answers(POSITIVE, NEGATIVE), ["a", "b"]).tolist() == [0, -1]
    with pytest.raises(ConfigError, match="sports"):
        classifier_scores(Answers("politics", "sports"), ["a"])


def test_the_score_of_the_teacher_counts_every_word_once_and_the_intercept():
    assert teacher.score(b"Bad, bad day", {b"bad": -2.0, b"bad day": 0.5, b"good": 9.0}, 0.25) == -1.25


def test_the_command_prints_every_kind_beside_the_teacher(probed, tmp_path, monkeypatch, capsys, pairs):
    documents = sample_reviews.documents()
    monkeypatch.setattr(negation, "training_documents", lambda data: documents)
    assert negation.main(["--model", probed, "--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["tiny", "bag", "of", "words"]
    assert len(lines) == 2 + len({pair.kind for pair in pairs}) + 3

    weights, intercept = teacher.fit(documents)
    scores = [teacher.score(encode(text, "reviews"), weights, intercept) for text in sentences(pairs)]
    expected = shares_by_kind(pairs, scores)[ALL]
    assert lines[-1].split()[:2] == [ALL, "200"]
    assert lines[-1].split()[-2:] == [f"{expected.both:.1f}", f"{expected.order:.1f}"]
    assert len(lines[-1].split()) == 2 + 2 * 4


def test_the_teacher_is_left_out_without_data_and_a_missing_model_is_an_error(probed, tmp_path, capsys):
    folder = shutil.copytree(probed, tmp_path / "other")
    assert negation.main(["--model", str(folder)]) == 0
    assert capsys.readouterr().out.split()[:7] == ["other", "kind", "pairs", "plain", "negated", "both", "order"]
    assert negation.main(["--model", str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err.startswith("negation: error: ")
