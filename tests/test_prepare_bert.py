"""Text becomes the token ids of its sentences, with a vocabulary that was learnt on it or given."""

import collections
import json
import lzma

import numpy as np
import pytest

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.text.vocabulary import SPECIAL, Vocabulary, read_vocabulary
from lbzoo.text.wordpiece import WordPiece
from tests.made_reviews import amazon, documents, fingerprint, make, reviews
from tests.small_vocabulary import small_vocabulary
from training import prepare_bert, sample_reviews, sources
from training.bert_data import BertStream
from training.learn_vocabulary import count_words, learn
from training.prepare_sentiment import write_shards
from training.sentences import sentences
from training.sources import Document
from training.token_shards import open_token_shards

pytest.importorskip("tensorflow_text", reason="tensorflow-text has no wheel for this platform")
VOCABULARY = Vocabulary(small_vocabulary())


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return make(tmp_path_factory.mktemp("reviews"), amazon(reviews(200)))[0]


@pytest.fixture(scope="module")
def made(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens") / "out"
    return folder, prepare_bert.prepare(shards, folder, VOCABULARY)


def test_a_document_is_the_pieces_of_its_sentences(shards, made):
    folder, index = made
    tokenizer = WordPiece(VOCABULARY)
    for split in ("train", "valid", "test"):
        found = open_token_shards(folder, split)
        cut = [sentences(text.decode()) for text in documents(shards, split)]
        assert np.diff(found.documents).tolist() == [len(parts) for parts in cut]
        expected = tokenizer.tokenize([sentence for parts in cut for sentence in parts])
        assert np.array_equal(found.tokens, expected.ids) and np.array_equal(found.sentences, expected.splits)
        assert index["splits"][split]["documents"] == len(cut)
    assert (index["text"], index["dtype"], found.text) == ("reviews-uncased", "uint16", "reviews-uncased")
    assert found.vocabulary == VOCABULARY and json.loads((folder / "index.json").read_text()) == index


def test_sentences_and_documents_without_pieces_are_left_out(tmp_path):
    texts = [b"\n \x01. \x02 ", b"\n Good. \x03 Bad film ", b"\n \x04 ", b"\n a "]
    write_shards([sample_reviews.Document(text, None, "x") for text in texts], tmp_path / "in", 1, None, {})
    index = prepare_bert.prepare(tmp_path / "in", tmp_path / "out", VOCABULARY)
    found = open_token_shards(tmp_path / "out")
    assert list(index["splits"]) == ["train"] and index["splits"]["train"]["documents"] == 3
    assert (np.diff(found.documents) > 0).all() and (np.diff(found.sentences) > 0).all()


def test_pieces_of_the_output_do_not_show(shards, made, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_bert, "_TASK", 1 << 10)
    prepare_bert.prepare(shards, tmp_path / "out", VOCABULARY)
    assert fingerprint(tmp_path / "out") == fingerprint(made[0])


@pytest.mark.slow
def test_processes_change_nothing(shards, made, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_bert, "_TASK", 1 << 12)
    prepare_bert.prepare(shards, tmp_path / "out", VOCABULARY, workers=2)
    assert fingerprint(tmp_path / "out") == fingerprint(made[0])


def test_a_vocabulary_is_learnt_from_the_training_text(tmp_path):
    text = sample_reviews.write(tmp_path / "in")
    index = prepare_bert.prepare(text, tmp_path / "out", size=500)
    found = open_token_shards(tmp_path / "out")
    pieces = found.vocabulary.pieces
    assert pieces[:5] == SPECIAL and len(pieces) == len(set(pieces)) < 500 and index["vocabulary"]["learnt"]
    assert {"camera", "is", "wonderful", ".", "!", "w", "##w"} <= set(pieces) and "##." not in pieces
    assert not (np.asarray(found.tokens) == found.vocabulary.unk).any()
    assert BertStream(tmp_path / "out", 4, 32, 5, seed=1).batch(0).ids.shape == (4, 32)
    again = prepare_bert.prepare(text, tmp_path / "again", size=500)
    assert again == index and fingerprint(tmp_path / "again") == fingerprint(tmp_path / "out")


def test_a_learnt_vocabulary_has_the_size_that_was_asked_for():
    rng = np.random.default_rng(1)
    letters = np.asarray(list("etaoinshrdlu"))
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(700)]
    counts = collections.Counter({word: int(700 / (rank + 1)) + 1 for rank, word in enumerate(words)})
    for size in (64, 300):
        learnt = learn(counts, size)
        assert len(learnt) == size and {"e", "##e"} <= set(learnt.pieces)
    assert len(learn(collections.Counter({"aa": 3, "ab": 2}), 500)) == 5 + 4 + 2
    with pytest.raises(ConfigError, match="29 rows. Received: a vocabulary of 20"):
        learn(counts, 20)
    with pytest.raises(TrainingError, match="without any"):
        learn(collections.Counter(), 500)


def test_words_are_counted_as_the_tokenizer_cuts_them():
    texts = ["It's GOOD... 中国 caf\u00e9".encode(), b"good", b"never read"]
    counts = count_words(texts, lowercase=True, sample=29)
    assert counts == {"it": 1, "'": 1, "s": 1, "good": 2, ".": 3, "中": 1, "国": 1, "cafe": 1}
    assert count_words(texts, lowercase=False)["GOOD"] == 1


def test_raw_reviews_go_in_with_the_options_of_prepare_reviews(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("body,stars\n" + "".join(f"Good film {i}. Bad plot.,5\n" for i in range(50)))
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    command = ["--input", str(tmp_path / "a.csv"), "--output", str(tmp_path / "out")]
    command += ["--vocab", str(tmp_path / "vocab.txt")]
    options = ["--text-field", "body", "--shards", "8,1,1"]
    assert prepare_bert.main([*command, *options]) == 0
    out = capsys.readouterr().out
    assert "350 pieces, given, reviews-uncased" in out
    found = [open_token_shards(tmp_path / "out", split) for split in ("train", "valid", "test")]
    assert sum(len(split.documents) - 1 for split in found) == 50
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("index.json", "test", "train", "valid", "vocab.txt")
    ]


def test_the_review_sets_give_every_text_once_and_amazons_valid_split_held_out(tmp_path, monkeypatch, capsys):
    texts = {"amazon": b"\n Good film. Bad plot. ", "imdb-train": b"\n So dull. ", "sst-phrase": b"\n dull "}
    documents = [Document(text, 4.0, source) for source, text in texts.items()]
    held_out = [Document(b"\n Held out. ", None, "amazon")]
    monkeypatch.setattr(sources, "training_documents", lambda data: iter(documents))
    monkeypatch.setattr(sources, "amazon_text", lambda data, split: iter({"valid": held_out}[split]))
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    command = ["--data", "DATA", "--output", str(tmp_path / "out"), "--vocab", str(tmp_path / "vocab.txt")]
    assert prepare_bert.main(command) == 0
    assert "given, reviews-uncased" in capsys.readouterr().out
    counts = {split: open_token_shards(tmp_path / "out", split).index["splits"][split] for split in ("train", "valid")}
    assert [(found["documents"], found["sentences"]) for found in counts.values()] == [(2, 3), (1, 1)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.json", "train", "valid", "vocab.txt"]


def test_a_damaged_review_set_is_one_error_that_names_the_file(tmp_path, capsys, monkeypatch):
    (tmp_path / "amazon").mkdir()
    path = tmp_path / "amazon" / "amazon_reviews.jsonl.xz"
    monkeypatch.setattr(sources, "training_documents", lambda data: sources.amazon_text(data, "train"))
    for damaged in (lzma.compress(b"{}" * 5000)[:-9], b"no xz at all"):
        path.write_bytes(damaged)
        assert prepare_bert.main(["--data", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
        assert f"{str(path)!r} cannot be read" in capsys.readouterr().err.splitlines()[-1]
        assert [found.name for found in tmp_path.iterdir()] == ["amazon"]


def test_wrong_settings_end_with_one_line(shards, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY.to_bytes())
    vocabulary = ["--vocab", str(tmp_path / "vocab.txt")]
    for command, message in (
        (["--prepared", str(tmp_path), *vocabulary], "is no folder of shards"),
        (["--input", str(tmp_path / "none.csv"), *vocabulary], "could not be prepared"),
        (["--prepared", str(shards), "--vocab", str(tmp_path / "none.txt")], "cannot be read"),
        (["--prepared", str(shards), "--vocab-size", "10"], "take"),
    ):
        assert prepare_bert.main([*command, "--output", str(tmp_path / "out")]) == 1
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        prepare_bert.main(["--prepared", str(shards), "--output", "x", "--title-field", "y"])
    write_shards([sample_reviews.Document(b"\n a ", None, "x")], tmp_path / "plain", 1, None, {"text_policy": "openai"})
    with pytest.raises(ConfigError, match="'openai'. Known: None, reviews"):
        prepare_bert.prepare(tmp_path / "plain", tmp_path / "out", VOCABULARY)
    assert read_vocabulary(tmp_path / "vocab.txt") == VOCABULARY
