"""Documents, the teacher's targets, and the batch as a pure function of (seed, step)."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import TrainingError
from training import sample_reviews, teacher
from training.data import ByteStream
from training.prepare_sentiment import repeated, write_shards
from training.sources import Document, phrases, share, training_documents, untokenize


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return sample_reviews.write(tmp_path_factory.mktemp("shards") / "made-up")


def stream(shards, rows=4, window=50, seed=1, **options):
    return ByteStream(shards, rows, window, seed, shard_bytes=2000, **options)


def test_a_batch_depends_on_seed_and_step_alone(shards):
    forward, backward = stream(shards), stream(shards)
    steps = range(forward.steps_per_epoch + 3)
    first = {t: forward.batch(t) for t in steps}
    for t in reversed(steps):
        again = backward.batch(t)
        for name in ("ids", "next_ids", "reset", "target"):
            np.testing.assert_array_equal(getattr(first[t], name), getattr(again, name))
    assert not np.array_equal(first[0].ids, stream(shards, seed=2).batch(0).ids)


def test_each_row_reads_on_where_it_stopped(shards):
    data = stream(shards)
    for t in range(data.steps_per_epoch - 1):
        here, after = data.batch(t), data.batch(t + 1)
        np.testing.assert_array_equal(here.next_ids[:, :-1], here.ids[:, 1:])
        np.testing.assert_array_equal(here.next_ids[:, -1], after.ids[:, 0])


def test_an_epoch_reads_every_byte_at_most_once_and_nearly_all(shards):
    data = stream(shards)
    read = np.concatenate([data.batch(t).ids.ravel() for t in range(data.steps_per_epoch)])
    everything = np.fromfile(shards / "text.bin", np.uint8)
    left_out = np.bincount(everything, minlength=256) - np.bincount(read, minlength=256)
    assert left_out.min() >= 0
    assert left_out.sum() < data.rows * (data.window + 1)


def test_the_state_is_reset_exactly_where_a_document_begins(shards):
    data = stream(shards)
    for t in range(data.steps_per_epoch):
        batch = data.batch(t)
        begins = batch.ids == ord("\n")  # in cleaned text the only newline opens a document
        begins[:, 0] |= t == 0
        np.testing.assert_array_equal(batch.reset, begins)


def test_resetting_at_shards_only_resets_less_often(shards):
    def count(**options):
        data = stream(shards, **options)
        return sum(data.batch(t).reset.sum() for t in range(data.steps_per_epoch))

    assert 0 < count(reset="shard") < count(reset="document")


def test_shards_that_are_damaged_or_too_small_are_refused(shards, tmp_path):
    with pytest.raises(TrainingError, match="prepare_reviews"):
        ByteStream(tmp_path / "nothing", 4, 50, 1)
    with pytest.raises(TrainingError, match="too few"):
        ByteStream(shards, 10_000, 500, 1)
    for name in ("text.bin", "offsets.npy", "index.json"):
        (tmp_path / name).write_bytes((shards / name).read_bytes())
    (tmp_path / "text.bin").write_bytes((shards / "text.bin").read_bytes()[:-1])
    with pytest.raises(TrainingError, match="damaged"):
        ByteStream(tmp_path, 4, 50, 1)


def test_two_judges_are_counted_alone_and_by_the_sum_of_their_log_odds():
    scores, others = np.array([2.0, -1.0, 0.5, -3.0]), np.array([-1.0, 3.0, 0.2, -0.1])
    assert teacher.beside(scores, others, [True, True, True, False]) == (75.0, 75.0, 100.0)


def test_the_same_documents_and_seed_give_the_same_files(tmp_path):
    made = sample_reviews.documents(50)
    weights, _ = teacher.fit(made)
    for name in ("a", "b"):
        write_shards(made, tmp_path / name, seed=3, weights=weights, note={})
    write_shards(made, tmp_path / "c", seed=4, weights=weights, note={})
    index = [json.loads((tmp_path / name / "index.json").read_text()) for name in "abc"]
    assert index[0] == index[1] != index[2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c"]  # nothing half-written is left


def test_repeats_choose_by_text_alone():
    made = [Document(str(i).encode(), None, "half" if i % 2 else "twice") for i in range(2000)]
    chosen = repeated(made, {"half": 0.5, "twice": 2})
    assert sum(d.source == "twice" for d in chosen) == 2000
    assert 400 < sum(d.source == "half" for d in chosen) < 600
    assert chosen == repeated(made, {"half": 0.5, "twice": 2})
    assert 0 <= share(b"x") < 1


def test_the_running_score_rises_after_the_word_that_raises_it():
    score = teacher.running_score(b"\n a good day ", {b"good": 2.0, b"good day": -0.5})
    assert len(score) == len(b"\n a good day ")
    assert score[:8].tolist() == [0] * 8  # "\n a good": known only once the word has ended
    assert score[8:12].tolist() == [2.0] * 4
    assert score[12:].tolist() == [1.5]


def test_a_word_counts_once_and_a_label_bends_the_end():
    weights = {b"bad": -1.0}
    assert teacher.running_score(b"bad bad bad!", weights)[-1] == -1.0
    assert teacher.running_score(b"bad bad bad!", weights, label=4.0)[-1] == 4.0
    assert teacher.running_score(b"bad bad bad!", weights, label=-0.5)[-1] == -1.0  # sure enough already
    assert teacher.running_score(b"bad bad bad!", weights, label=0.0)[-1] == 0.0


@given(st.binary(max_size=200))
def test_the_running_score_has_one_value_for_every_byte(text):
    score = teacher.running_score(text, {b"a": 1.0, b"b": -1.0, b"a b": 0.5}, label=4.0)
    assert score.shape == (len(text),) and np.isfinite(score).all()


def test_the_teacher_learns_which_words_are_good():
    weights, _ = teacher.fit(sample_reviews.documents())
    assert weights[b"wonderful"] > 0 > weights[b"dull"]


def test_every_node_of_a_tree_is_a_phrase():
    tree = "(3 (2 (2 not) (1 bad)) (2 .))"
    assert list(phrases(tree)) == [
        (2, ["not"]),
        (1, ["bad"]),
        (2, ["not", "bad"]),
        (2, ["."]),
        (3, ["not", "bad", "."]),
    ]


def test_treebank_words_become_text_as_people_write_it():
    words = "It ca n't be -LRB- that -RRB- bad , `` really '' : 's what co-writer\\/director says .".split()
    assert untokenize(words) == "It can't be (that) bad, \"really\":'s what co-writer/director says."


@pytest.mark.slow
def test_no_test_or_dev_text_is_trained_on(data_dir):
    from lbzoo.text.clean import encode
    from lbzoo.transfer.reviews import read_task

    def key(text):
        return b" ".join(text.lower().split())

    trained = {key(d.text) for d in training_documents(data_dir)}
    for task, folder, splits in (
        ("sst", "sst2_sentence", ("dev", "test")),
        ("imdb", "imdb", ("test",)),
        ("amazon", "amazon", ("valid", "test")),
    ):
        for split in splits:
            texts, _ = read_task(task, data_dir / folder, split)
            assert not trained & {key(encode(text, "reviews")) for text in texts}, (task, split)
