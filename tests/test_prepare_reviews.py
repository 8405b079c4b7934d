"""Reviews of any form become the same shards, each text once."""

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbzoo.errors import TableError, TrainingError
from lbzoo.text.clean import encode
from lbzoo.transfer.reviews import review_text
from tests.made_reviews import PACKING, amazon, documents, expected, fingerprint, jsonl, make, policy, reviews, table
from training import prepare_reviews
from training.data import ByteStream
from training.documents import SPLITS, Policy, split_by_hash
from training.inputs import Fields
from training.prepare_reviews import prepare
from training.shards import open_shards
from training.sources import share


def test_amazon_reviews_become_title_and_text_as_the_checkpoints_read_them(tmp_path):
    pairs = reviews(300)
    output, index = make(tmp_path, amazon(pairs))
    assert sorted(documents(output)) == expected(pairs)
    assert index["documents"] == index["rows"] == 300 and index["broken"]["rows"] == 0
    assert index["text_policy"] == "reviews"
    assert index["sources"] == [
        {
            "name": "reviews.jsonl",
            "format": "jsonl",
            "bytes": (tmp_path / "reviews.jsonl").stat().st_size,
            "rows": 300,
            "documents": 300,
            "empty": 0,
            "broken": 0,
        }
    ]


def test_fields_can_be_named_and_the_text_policy_chosen(tmp_path):
    data = jsonl({"body": f"<br />{i}", "head": "T", "text": "not this"} for i in range(30))
    output, _ = make(tmp_path, data, chosen=policy(text="body"))
    assert sorted(documents(output)) == sorted(encode(f"{i}", "reviews") for i in range(30))
    output, index = make(tmp_path, data, chosen=Policy("openai", Fields("body", "head"), 1, (1, 1, 1)))
    assert sorted(documents(output)) == sorted(encode(f"T. <br />{i}", "openai") for i in range(30))
    assert index["text_policy"] == "openai"


@pytest.mark.parametrize("packing", PACKING)
@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "txt"])
def test_every_form_of_the_same_texts_gives_the_same_shards(tmp_path, format, packing):
    pairs = reviews(200)
    whole = [review_text(*pair) for pair in pairs]
    data = {
        "jsonl": jsonl({"text": text} for text in whole),
        "csv": table(["stars", "review"], [(5, text) for text in whole]),
        "tsv": ("review\tstars\n" + "".join(f"{text}\t1\n" for text in whole)).encode(),  # its quotes mean nothing
        "txt": "".join(text + "\n" for text in whole).encode(),
    }[format]
    output, _ = make(tmp_path, PACKING[packing](data), f"reviews.{format}{packing}")
    same, _ = make(tmp_path / "jsonl", amazon(pairs))
    for split in SPLITS:
        assert open_shards(output, split).index == open_shards(same, split).index
        assert list(open_shards(output, split).documents()) == list(open_shards(same, split).documents())


def test_cells_with_line_ends_a_mark_and_titles(tmp_path):
    rows = [("Fine", "line one\nline two, and more\r\nthree"), ("", 'say "hi"'), ("Only a title", "")]
    data = b"\xef\xbb\xbf" + table(["title", "text"], rows)
    output, index = make(tmp_path, data, "reviews.csv")
    assert sorted(documents(output)) == expected(rows)
    assert index["rows"] == 3


def test_csv_without_a_header_and_with_semicolons(tmp_path):
    output, _ = make(tmp_path, b"1,so good\n0,so bad\n", "reviews.csv", chosen=policy(text="2"), header=False)
    assert sorted(documents(output)) == [b"\n so bad ", b"\n so good "]
    output, _ = make(tmp_path, b"label;text\n1;so good\n", "reviews.csv")
    assert documents(output) == [b"\n so good "]


def test_empty_texts_and_blank_lines_are_left_out(tmp_path):
    data = jsonl([{"text": ""}, {"text": None}, {"text": " \n "}, {"text": "<br />"}, {"text": "good"}]) + b"\n \r\n"
    output, index = make(tmp_path, data)
    assert documents(output) == [b"\n good "]
    assert (index["rows"], index["empty"], index["broken"]["rows"]) == (5, 4, 0)


# broken rows


def test_the_split_by_hash_is_a_function_of_the_text_alone(tmp_path):
    pairs = reviews(600)
    outputs = [
        make(tmp_path / "a", amazon(pairs), chosen=policy(seed=1, shards=(4, 1, 1)))[0],
        make(tmp_path / "b", amazon(pairs[::-1] + reviews(100, seed=5)), chosen=policy(seed=2, shards=(4, 1, 1)))[0],
    ]
    for name, low, high in (("train", 0, 4 / 6), ("valid", 4 / 6, 5 / 6), ("test", 5 / 6, 1)):
        first, second = (set(documents(output, name)) for output in outputs)
        assert first == {text for text in expected(pairs) if low <= share(text) < high}
        assert first <= second
    assert documents(outputs[0]) != [text for text in documents(outputs[1]) if text in set(documents(outputs[0]))]


def test_without_held_out_shards_everything_is_trained_on(tmp_path):
    output, index = make(tmp_path, amazon(reviews(50)), chosen=policy(shards=(3, 0, 0)))
    assert index["splits"]["train"]["documents"] == 50
    assert documents(output, "test") == []
    with pytest.raises(TrainingError, match="too few"):
        ByteStream(output, 1, 1, 1, split="test")
    top = np.asarray([0, 2**63, 2**64 - 1], np.uint64)
    assert split_by_hash(top, (1, 0, 0)).tolist() == [0, 0, 0]
    assert split_by_hash(top, (1, 0, 1)).tolist() == [0, 2, 2]


def test_a_split_that_the_data_carry_is_kept_and_what_is_held_out_is_not_trained_on(tmp_path):
    names = ("train", "dev", "Validation", "test", None, "")
    rows = [{"text": f"text {i}", "split": names[i % 6]} for i in range(120)]
    rows += [{"text": f"text {i}", "split": "train"} for i in range(6)]  # the same again, to train on
    output, index = make(tmp_path, jsonl(rows))

    def numbers(split):
        return {int(text.split()[1]) for text in documents(output, split)}

    assert {i for i in range(120) if i % 6 == 3} <= numbers("test")
    assert {i for i in range(120) if i % 6 in (1, 2)} <= numbers("valid")
    assert {i for i in range(120) if i % 6 == 0} <= numbers("train")
    assert not numbers("train") & {1, 2, 3} and not numbers("valid") & numbers("test")
    assert len(documents(output)) == 120 and index["duplicates"] == 6
    output, _ = make(tmp_path, jsonl(rows), chosen=policy(split=False))
    assert numbers("test") == {i for i in range(120) if share(encode(f"text {i}", "reviews")) >= 12 / 15}


def test_exact_duplicates_are_dropped_wherever_they_stand(tmp_path):
    pairs = reviews(400)
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_bytes(amazon(pairs + pairs[::2]))
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    index = prepare(paths, tmp_path / "out", policy(), workers=2)
    assert sorted(documents(tmp_path / "out")) == expected(pairs)
    assert index["duplicates"] == 800 and index["documents"] == 400


def test_processes_blocks_and_the_order_of_the_input_change_nothing(tmp_path, monkeypatch):
    pairs = reviews(1500)
    output, _ = make(tmp_path / "a", amazon(pairs))
    whole = fingerprint(output)
    output, _ = make(tmp_path / "b", amazon(pairs), workers=3)
    assert fingerprint(output) == whole
    monkeypatch.setattr("training.partitions.SLICE", 100)
    monkeypatch.setattr("training.partitions.WHOLE", 100)
    monkeypatch.setattr(prepare_reviews, "_partitions", lambda found: 7)
    output, _ = make(tmp_path / "c", amazon(random.Random(1).sample(pairs, len(pairs))))
    assert fingerprint(output) == whole
    output, _ = make(tmp_path / "d", amazon(pairs), chosen=policy(seed=2))
    assert documents(output, "train") != documents(tmp_path / "a" / "out", "train")
    assert sorted(documents(output, "train")) == sorted(documents(tmp_path / "a" / "out", "train"))


@settings(max_examples=25)
@given(st.lists(st.text(alphabet="ab<> \u00e9\x00\x85\ud800&;", max_size=5), max_size=30), st.integers(0, 2**64 - 1))
def test_every_text_is_there_exactly_once(tmp_path_factory, texts, seed):
    wanted = {encode(text, "reviews") for text in texts} - {encode("")}
    folder = tmp_path_factory.mktemp("any")
    if not wanted:
        with pytest.raises(TableError, match="no text"):
            make(folder, jsonl({"text": text} for text in texts))
        return
    output, _ = make(folder, jsonl({"text": text} for text in texts), chosen=policy(seed=seed))
    assert sorted(documents(output)) == sorted(wanted)


# the folder


def test_every_shard_is_a_range_of_whole_documents_with_its_hash(tmp_path):
    output, index = make(tmp_path, amazon(reviews(500)))
    for split, count in zip(SPLITS, (10, 2, 3)):
        shards = open_shards(output, split)
        described = shards.index["shards"]
        assert len(described) == count == index["splits"][split]["shards"]
        assert [shard["begin"] for shard in described[1:]] == [s["begin"] + s["bytes"] for s in described[:-1]]
        assert described[-1]["begin"] + described[-1]["bytes"] == shards.index["bytes"] == len(shards.text)
        for shard in described:
            text = shards.text[shard["begin"] : shard["begin"] + shard["bytes"]].tobytes()
            assert hashlib.sha256(text).hexdigest() == shard["sha256"]
            assert text.count(b"\n") == shard["documents"] and text[:1] in (b"\n", b"")
        lines = "".join(shard["sha256"] + "\n" for shard in described)
        assert hashlib.sha256(lines.encode()).hexdigest() == index["splits"][split]["sha256"]
        assert all(text.startswith(b"\n ") for text in shards.documents())


def test_training_reads_the_shards_and_resets_where_one_begins(tmp_path):
    output, _ = make(tmp_path, amazon(reviews(900)))
    shards = open_shards(output)
    begins = {shards.index["shards"][i]["begin"] for i in range(10)}
    data, again = (ByteStream(output, 4, 50, 1, reset="shard") for _ in range(2))
    seen, resets = np.zeros(256, np.int64), 0
    for t in range(data.steps_per_epoch):
        batch = data.batch(t)
        other = again.batch(data.steps_per_epoch - 1 - t)
        seen += np.bincount(batch.ids.ravel(), minlength=256)
        resets += int(batch.reset.sum()) - (4 if t == 0 else 0)
        assert batch.target is None and other.target is None
        assert (batch.ids[batch.reset] == ord("\n")).all() or t == 0
    assert len(begins) - 4 <= resets + 1 <= len(begins) + 1  # a row may start right at a shard
    left_out = np.bincount(shards.text, minlength=256) - seen
    assert left_out.min() >= 0 and left_out.sum() < 4 * 51
    by_document = ByteStream(output, 4, 50, 1)
    batch = by_document.batch(1)
    np.testing.assert_array_equal(batch.reset, batch.ids == ord("\n"))
    assert not data.has_target
    test = ByteStream(output, 2, 20, 1, split="test")
    assert test.index == open_shards(output, "test").index
