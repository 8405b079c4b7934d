"""A checkpoint's running score as the target of the next run."""

import argparse

import numpy as np
import pytest

import lbzoo
from lbzoo import checkpoint
from lbzoo.errors import CheckpointError, ConfigError
from tests.order_bert import small_bert
from training import earlier_self, prepare_sentiment, teacher
from training.sources import Document

MODEL = "mlstm-512-reviews"
TEXTS = [b"\n a charming little lamp ", b"", b"\n " + b"not what I had hoped for, sadly. " * 12, b"x"]


def test_the_score_after_every_byte_is_what_the_read_out_says_of_the_text_so_far():
    classifier = lbzoo.SentimentClassifier(MODEL)
    found = earlier_self.running_scores(MODEL, TEXTS, precision="float32")
    assert [len(scores) for scores in found] == [len(text) for text in TEXTS]
    for text, scores in zip(TEXTS, found):
        expected = classifier.trace(text).values if text else np.zeros(0)
        np.testing.assert_allclose(scores, expected, atol=2e-2)  # of float16


def test_a_text_is_scored_alike_whatever_stands_beside_it():
    alone = earlier_self.running_scores(MODEL, TEXTS[2:3], precision="float32")[0]
    together = earlier_self.running_scores(MODEL, TEXTS, precision="float32")[2]
    np.testing.assert_allclose(alone, together, atol=1e-2)


def test_a_checkpoint_without_a_probe_cannot_teach(tmp_path):
    model = lbzoo.MLSTMLanguageModel(lbzoo.MLSTMConfig(units=8, embedding_dim=4))
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(CheckpointError):
        earlier_self.running_scores(str(tmp_path / "bare"), [b"x"])


def test_a_bert_cannot_teach_bytes(tmp_path):
    folder = str(checkpoint.save(small_bert(), tmp_path / "bert"))
    with pytest.raises(ConfigError, match="an mLSTM is needed to score every byte. Received: .*, a Bert"):
        earlier_self.running_scores(folder, [b"x"])


def test_the_earlier_self_teaches_in_place_of_the_bag_and_beside_it_where_there_is_no_label():
    weights, own = {b"bad": -2.0}, {b"bad one": np.array([0, 0, 0, 1, 1, 1, 1], np.float16)}
    labelled, unlabelled = Document(b"bad one", 4.0, "s"), Document(b"bad one", None, "s")
    assert prepare_sentiment.target(labelled, weights, {})[3] == 1.0  # -2, half way to +4
    assert prepare_sentiment.target(labelled, weights, own)[3] == 2.5  # 1, half way to +4
    assert prepare_sentiment.target(labelled, weights, own)[-1] == 4.0
    mean = (own[b"bad one"] + teacher.running_score(b"bad one", weights)) / 2
    np.testing.assert_allclose(prepare_sentiment.target(unlabelled, weights, own), mean)


def test_only_the_named_sources_are_scored_and_each_text_once(monkeypatch):
    seen = []

    def running_scores(model, texts):
        seen.extend(texts)
        return [np.zeros(len(text), np.float16) for text in texts]

    monkeypatch.setattr(earlier_self, "running_scores", running_scores)
    documents = [
        Document(b"b", 1.0, "x"),
        Document(b"a", None, "x"),
        Document(b"b", 1.0, "x"),
        Document(b"c", 1.0, "y"),
    ]
    assert sorted(prepare_sentiment.own_scores(documents, "any", ["x"])) == seen == [b"a", b"b"]


@pytest.mark.parametrize("text", ["amazon", "amazon=", "amazon=-1", "amazon=inf", "amazon=nan", "letters=1"])
def test_a_repeat_that_makes_no_sense_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        prepare_sentiment._repeat(text)
    assert prepare_sentiment._repeat("amazon=1.5") == ("amazon", 1.5)


def test_a_misspelt_teacher_is_told_before_anything_is_read(tmp_path, capsys):
    command = ["--data", str(tmp_path / "nowhere"), "--output", str(tmp_path / "out"), "--own", "mlstm-1023-reviews"]
    assert prepare_sentiment.main(command) == 1
    assert "mlstm-1024-reviews" in capsys.readouterr().err  # did you mean
    assert not (tmp_path / "out").exists()
