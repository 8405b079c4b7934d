"""Pairs, masks and batches of BERT's pre-training: what is drawn, and that it is a function of (seed, step)."""

import numpy as np
import pytest

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from training.bert_data import BertStream
from training.bert_recipes import BertDataConfig
from training.masking import Masking, noise
from training.pairs import draw
from training.shards import write_index
from training.token_shards import TokenWriter, open_token_shards

DOCUMENTS = 150
CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Token i of the text has the id 5 + i, so that a row tells where it was read."""
    rng = np.random.default_rng(5)
    folder = tmp_path_factory.mktemp("tokens")
    counts = rng.integers(1, 12, DOCUMENTS)
    lengths = rng.integers(1, 15, counts.sum())
    total = int(lengths.sum())
    vocabulary = Vocabulary([*SPECIAL, *(f"{'##' * (i % 3 > 0)}p{i}" for i in range(total))])
    with TokenWriter(folder / "train", np.dtype(np.uint16)) as writer:
        for part in (slice(0, 60), slice(60, None)):  # in two goes
            first, last = counts[: part.start].sum(), counts[: part.stop].sum()
            before = lengths[:first].sum()
            inside = lengths[first:last]
            writer.add(5 + before + np.arange(inside.sum()), inside, counts[part])
    (folder / "vocab.txt").write_bytes(vocabulary.to_bytes())
    write_index(folder, {"text": "uncased", "dtype": "uint16", "splits": {"train": writer.counts}})
    return folder


def stream(folder, rows=8, length=40, predictions=6, seed=1, **config):
    return BertStream(folder, rows, length, predictions, seed, BertDataConfig(**config))


def drawn(folder, room=30, short_share=0.1, next_sentence=True, seed=1):
    shards = open_token_shards(folder)
    rng = np.random.default_rng(seed)
    return shards, draw(shards.sentences, shards.documents, room, short_share, next_sentence, rng)


def unmasked(batch):
    ids = batch.ids.copy()
    row, column = np.nonzero(batch.weights)
    ids[row, batch.positions[row, column]] = batch.labels[row, column]
    return ids


def same(a, b, rows=slice(None)):
    first, second = a.fields(), b.fields()
    return first.keys() == second.keys() and all(np.array_equal(first[name][rows], second[name]) for name in first)


def test_the_folder_comes_back_as_it_was_written(folder):
    shards = open_token_shards(folder)
    assert np.array_equal(shards.tokens, 5 + np.arange(len(shards.tokens)))
    assert shards.sentences[-1] == len(shards.tokens) and shards.documents[-1] == len(shards.sentences) - 1
    assert (np.diff(shards.sentences) > 0).all() and (np.diff(shards.documents) > 0).all()
    assert len(shards.documents) == DOCUMENTS + 1


def test_half_of_the_second_texts_follow_and_the_others_come_from_elsewhere(folder):
    shards, pairs = drawn(folder, room=10_000, short_share=1)  # nothing is cut
    owner = np.searchsorted(shards.sentences[shards.documents], pairs.begins, side="right")
    other = np.searchsorted(shards.sentences[shards.documents], pairs.second_begins, side="right")
    follows = pairs.following == 0
    assert np.array_equal(pairs.begins[follows] + pairs.lengths[follows], pairs.second_begins[follows])
    assert (owner[follows] == other[follows]).all() and (owner[~follows] != other[~follows]).all()
    assert 0.2 < follows.mean() < 0.5  # documents of one sentence have nothing that follows
    for begin, length in ((pairs.begins, pairs.lengths), (pairs.second_begins, pairs.second_lengths)):
        assert np.isin(begin, shards.sentences).all() and np.isin(begin + length, shards.sentences).all()
        assert (length > 0).all()


def test_every_sentence_is_read_where_no_second_text_is_random(folder):
    shards, texts = drawn(folder, room=10_000, short_share=0, next_sentence=False)
    assert np.array_equal(np.sort(texts.begins), shards.sentences[shards.documents[:-1]])
    assert texts.lengths.sum() == len(shards.tokens)
    _, texts = drawn(folder, room=20, short_share=0, next_sentence=False)
    ends = np.sort(texts.begins + texts.lengths)
    assert (np.sort(texts.begins)[1:] >= ends[:-1]).all() and texts.lengths.max() == 20
    assert texts.lengths.sum() > 0.85 * len(shards.tokens)  # what is cut are pieces beyond the room


def test_rows_fill_the_room_but_for_short_ones_and_the_ends_of_documents(folder):
    for short_share, expected in ((0.0, 1.0), (1.0, 0.5)):
        _, pairs = drawn(folder, room=20, short_share=short_share)
        total = pairs.lengths + pairs.second_lengths
        assert total.max() == 20 and pairs.lengths.min() > 0 and pairs.second_lengths.min() > 0
        assert (total[pairs.following == 1] == 20).mean() >= 0.5 * expected
    assert (total < 20).mean() > 0.3


def test_a_text_that_is_cut_loses_pieces_at_both_ends(folder):
    shards, texts = drawn(folder, room=4, short_share=0, next_sentence=False)
    from_front = ~np.isin(texts.begins, shards.sentences)
    from_back = ~np.isin(texts.begins + texts.lengths, shards.sentences)
    assert (texts.lengths <= 4).all() and 0.2 < from_front.mean() < 0.9 and 0.2 < from_back.mean() < 0.9


def test_a_batch_depends_on_seed_and_step_alone(folder):
    forward, backward = stream(folder), stream(folder)
    steps = range(forward.steps_per_epoch + 3)
    first = {t: forward.batch(t) for t in steps}
    assert all(same(first[t], backward.batch(t)) for t in reversed(steps))
    assert not same(first[0], stream(folder, seed=2).batch(0))
    ids = [unmasked(first[t]).tobytes() for t in steps]
    assert len(set(ids)) == len(ids)


def test_every_second_row_begins_at_any_position_that_leaves_room(folder):
    data = stream(folder, length=40, positions=50)
    starts = np.stack([data.batch(t).starts for t in range(12)])
    assert not starts[:, ::2].any() and set(starts[:, 1::2].ravel()) >= {0, 5, 10} and starts.max() == 10
    assert not stream(folder, length=40, positions=30).batch(0).starts.any()
    assert stream(folder).batch(0).starts is None


@pytest.mark.parametrize("config", [{}, {"whole_words": True}, {"positions": 64}])
def test_some_rows_are_those_of_the_whole_batch(folder, config):
    data = stream(folder, **config)
    whole = data.batch(3)
    for rows in (slice(0, 3), slice(3, 8), slice(7, 8)):
        assert same(whole, data.batch(3, rows), rows)


def test_rows_hold_two_texts_between_special_tokens(folder):
    data = stream(folder)
    for t in range(data.steps_per_epoch):
        batch = data.batch(t)
        for ids, segments, mask, following in zip(unmasked(batch), batch.segments, batch.mask, batch.following):
            used = int(mask.sum())
            assert mask[:used].all() and not ids[used:].any() and not segments[used:].any()
            first, second = np.flatnonzero(ids == SEP)
            assert ids[0] == CLS and second == used - 1
            assert not segments[: first + 1].any() and segments[first + 1 : used].all()
            for text in (ids[1:first], ids[first + 1 : second]):
                assert len(text) and (np.diff(text) == 1).all() and text[0] >= 5
            if following == 0:
                assert 0 < ids[first + 1] - ids[first - 1] < 30  # what was cut lies between


def test_single_texts_stand_in_one_segment(folder):
    batch = stream(folder, next_sentence=False).batch(0)
    ids = unmasked(batch)
    assert not batch.segments.any() and not batch.following.any()
    assert ((ids == SEP).sum(axis=1) == 1).all() and (ids[np.arange(8), batch.mask.sum(axis=1) - 1] == SEP).all()


def test_shapes_and_types_are_those_that_training_takes(folder):
    batch = stream(folder, rows=5, length=16, predictions=30).batch(0)
    expected = {"ids": (16, "int32"), "segments": (16, "int32"), "mask": (16, "bool")}
    expected.update(positions=(30, "int32"), labels=(30, "int32"), weights=(30, "float32"))
    for name, (width, dtype) in expected.items():
        array = getattr(batch, name)
        assert array.shape == (5, width) and array.dtype == dtype
    assert batch.following.shape == (5,) and batch.following.dtype == np.int32


def tokens(rows, length, vocabulary, seed=3):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, len(vocabulary), (rows, length)).astype(np.int32)
    lengths = rng.integers(5, length + 1, rows)
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths - 1] = SEP
    ids[np.arange(length) >= lengths[:, None]] = 0
    return ids, lengths


@pytest.mark.parametrize("whole_words", [False, True])
def test_fifteen_percent_are_predicted_of_which_eighty_percent_are_masked(whole_words):
    vocabulary = Vocabulary([*SPECIAL, *(f"{'##' * (i % 2)}p{i}" for i in range(995))])
    ids, lengths = tokens(2000, 100, vocabulary)
    masked = Masking(vocabulary, 15, whole_words=whole_words)(ids, lengths, 1, 7, np.arange(2000))
    row, column = np.nonzero(masked.weights)
    place, label = masked.positions[row, column], masked.labels[row, column]
    assert np.array_equal(ids[row, place], label) and (label >= 5).all() and (place < lengths[row]).all()
    assert (np.diff(masked.positions, axis=1)[masked.weights[:, 1:] > 0] > 0).all()
    counts = masked.weights.sum(axis=1)
    expected = np.maximum(np.rint(0.15 * lengths), 1)
    assert (counts <= np.minimum(expected, 15)).all()
    assert whole_words or np.array_equal(counts, np.minimum(expected, 15))
    assert counts.sum() > 0.9 * expected.sum()
    there = masked.ids[row, place]
    assert abs((there == MASK).mean() - 0.8) < 0.01 and abs((there == label).mean() - 0.1) < 0.01
    replaced = there[(there != MASK) & (there != label)]
    assert len(np.unique(replaced)) > 700 and replaced.max() < 1000
    others = np.ones(ids.shape, bool)
    others[row, place] = False
    assert np.array_equal(masked.ids[others], ids[others])
    assert not masked.positions[masked.weights == 0].any() and not masked.labels[masked.weights == 0].any()
    fractions = np.bincount(place, minlength=100)[1:60] / (lengths[:, None] > np.arange(1, 60)).sum(axis=0)
    assert fractions.min() > 0.08 and fractions.max() < 0.22  # no place is preferred


def test_whole_words_are_masked_with_all_their_pieces():
    vocabulary = Vocabulary([*SPECIAL, *(f"{'##' * (i % 2)}p{i}" for i in range(95))])
    ids, lengths = tokens(300, 60, vocabulary)
    masked = Masking(vocabulary, 20, share=0.3, whole_words=True)(ids, lengths, 1, 0, np.arange(300))
    continues = np.asarray([piece.startswith("##") for piece in vocabulary.pieces])[ids]
    chosen = np.zeros(ids.shape, bool)
    row, column = np.nonzero(masked.weights)
    chosen[row, masked.positions[row, column]] = True
    inside = continues[:, 2:] & (ids[:, 2:] != SEP) & (ids[:, 2:] != 0)
    assert np.array_equal(chosen[:, 2:][inside], chosen[:, 1:-1][inside])
    assert (chosen[:, 2:] & inside).sum() > 500


def test_masks_are_new_in_every_pass_unless_they_are_duplicated(folder):
    dynamic, static = stream(folder), stream(folder, duplicates=2)
    steps = dynamic.steps_per_epoch
    assert same(dynamic.batch(1), static.batch(1)) and same(dynamic.batch(steps + 1), static.batch(steps + 1))
    assert same(static.batch(1), static.batch(2 * steps + 1)) and not same(static.batch(1), static.batch(steps + 1))
    assert not same(dynamic.batch(1), dynamic.batch(2 * steps + 1))


def test_noise_is_even_and_belongs_to_its_row():
    numbers = noise(1, 2, np.arange(4000), 0, 50)
    assert abs(numbers.mean() - 0.5) < 0.005 and 0 <= numbers.min() and numbers.max() < 1
    assert len(np.unique(numbers)) == numbers.size
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.01
    assert np.array_equal(noise(1, 2, np.asarray([7]), 0, 50)[0], numbers[7])
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        seed, step, kind = other
        assert not np.isin(noise(seed, step, np.arange(100), kind, 50), numbers).any()


def test_what_cannot_be_trained_on_is_refused(folder, tmp_path):
    with pytest.raises(TrainingError, match="prepare_bert"):
        stream(tmp_path)
    with pytest.raises(TrainingError, match="splits train. Received: 'valid'"):
        BertStream(folder, 8, 40, 6, 1, split="valid")
    with pytest.raises(TrainingError, match="too few for 100000"):
        stream(folder, rows=100_000)
    for sizes in ({"rows": 0}, {"predictions": 0}, {"length": 4}, {"mask_share": 1.5}, {"duplicates": -1}):
        with pytest.raises(ConfigError, match="Received"):
            stream(folder, **sizes)
    with pytest.raises(TrainingError, match="1 document"):
        draw(np.asarray([0, 5, 9]), np.asarray([0, 2]), 30, 0.1, True, np.random.default_rng(1))
    for name in ("index.json", "vocab.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "train").mkdir()
    for name in ("tokens.bin", "sentences.bin", "documents.bin"):
        (tmp_path / "train" / name).write_bytes((folder / "train" / name).read_bytes()[:-8])
    with pytest.raises(TrainingError, match=r"tokens\.bin must have \d+ bytes"):
        stream(tmp_path)
