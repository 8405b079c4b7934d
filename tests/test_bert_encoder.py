"""A BERT under fine-tuning: what trains is what is read, by which vector, with which weights, how much of a text."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import lbzoo
from lbzoo.errors import ConfigError
from lbzoo.models.bert import BertEncoder
from lbzoo.text.pairs import TextPair
from lbzoo.transfer.encoders import encoder_of
from tests.order_bert import small_bert

TEXTS = ["good film", "", "the bad book . the good book .", "good", b"bad"]
PAIRS = [TextPair("good film", "bad book"), TextPair("", ""), TextPair("the", "good good good")]


@pytest.mark.parametrize("pool", ["pooled", "cls", "mean", "max"])
@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_features_are_those_of_the_extractor(pool, texts):
    model = small_bert()
    encoder = encoder_of(model, pool=pool)
    rows, cut = encoder.encode(texts)
    assert cut == 0 and encoder.reads == {"state": "cell", "pool": pool, "tanh": False}
    wanted = lbzoo.FeatureExtractor(model, pool=pool).transform(texts)
    np.testing.assert_allclose(encoder.read(rows, 2), wanted, atol=1e-5)
    np.testing.assert_allclose(encoder.forward(*encoder.batch(rows))[0], wanted, atol=1e-5)
    for spec, array in zip(encoder.signature, encoder.batch(rows)):
        assert spec.shape.is_compatible_with(array.shape) and spec.dtype == array.dtype
    assert encoder.encode([]) == ([], 0)


@pytest.mark.parametrize(
    ("head", "pooler", "card", "pool"),
    [
        ("pretraining", True, {}, "pooled"),
        ("masked-lm", False, {}, "mean"),
        (None, True, {}, "mean"),
        (None, False, {}, "mean"),
        (None, True, {"pool": "pooled"}, "pooled"),
        (None, False, {"pool": "pooled"}, "mean"),
        ("pretraining", True, {"pool": "cls"}, "cls"),
    ],
)
def test_which_features_follows_from_what_the_checkpoint_was_trained_for(head, pooler, card, pool):
    encoder = encoder_of(small_bert(head, pooler, **card))
    assert encoder.reads["pool"] == pool and encoder.model.config.pooler == (pool == "pooled")
    assert encoder.model.config.head is None


def test_a_head_on_the_pooler_makes_it_the_features():
    assert encoder_of(small_bert().with_head("classifier", ["a", "b"])).reads["pool"] == "pooled"


def test_every_weight_is_in_one_group_from_the_top_down():
    encoder = encoder_of(small_bert())
    names = {variable.ref(): name for name, variable in encoder.model.named_weights().items()}
    found = [[names[variable.ref()] for variable in group] for group in encoder.groups()]
    assert sorted(sum(found, [])) == sorted(names.values())
    assert [{name.split("/")[0] for name in group} for group in found] == [{"layer_0", "pooler"}, {"embeddings"}]
    with pytest.raises(ConfigError, match="Received: a BERT. Set language_model_weight=0"):
        encoder.language_model()


def test_gradients_reach_every_weight_and_dropout_follows_the_seed():
    encoder = encoder_of(small_bert(dropout=0.3))
    batch = encoder.batch(encoder.encode(PAIRS)[0])
    plain, same, again, other, each = (
        encoder.forward(*batch, seed=seed)[0].numpy()
        for seed in (None, [1, 2], [1, 2], [1, 3], [[1, 0], [1, 1], [1, 2]])
    )
    np.testing.assert_array_equal(same, again)
    assert not np.allclose(same, plain) and not np.allclose(same, other) and np.isfinite(each).all()
    variables = [variable for group in encoder.groups() for variable in group]
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder.forward(*batch, seed=[1, 2])[0])
    assert all(gradient is not None for gradient in tape.gradient(total, variables))


def test_what_is_longer_than_is_read_is_cut_and_counted():
    encoder = encoder_of(small_bert(), max_length=8)
    rows, cut = encoder.encode(["good " * 100, "good " * 6, "good " * 7])
    assert [len(row) for row in rows] == [8, 8, 8] and cut == 2 and encoder.limit == 8
    pairs, cut = encoder.encode([TextPair("good", "bad " * 50), TextPair("good film", "bad book")])
    assert [row[:, 0].tolist() for row in pairs] == [[2, 5, 3, 6, 6, 6, 6, 3], [2, 5, 8, 3, 6, 9, 3]] and cut == 1
    assert pairs[0][:, 1].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert encoder.model.config.max_position_embeddings == 8 and encoder_of(small_bert()).limit == 16


def test_it_works_on_a_copy():
    model = small_bert()
    before = {name: variable.numpy() for name, variable in model.named_weights().items()}
    encoder = encoder_of(model, dtype="bfloat16")
    assert type(encoder.model) is BertEncoder and encoder.model.compute_dtype == "bfloat16"
    assert encoder.read(encoder.encode(TEXTS)[0], 4).dtype == np.float32
    for group in encoder.groups():
        for variable in group:
            variable.assign_add(tf.ones_like(variable))
    for name, variable in model.named_weights().items():
        np.testing.assert_array_equal(variable.numpy(), before[name])


def test_defaults_go_with_the_width():
    defaults = encoder_of(small_bert(dropout=0.2)).defaults
    assert defaults["learning_rate"] == pytest.approx(3e-5 * 768 / 16) and defaults["unfreeze"] == "all"
    assert defaults["dropout"] == 0.2 and defaults["weight_decay"] == 0.01 and defaults["epochs"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype must be"),
        ({"window": 64}, "max_length says how much that is. Received: window=64"),
        ({"max_length": 17}, "from 3 to the 16 positions"),
        ({"max_length": 2}, "from 3 to the 16 positions"),
        ({"max_length": 8.0}, "max_length must be a positive integer"),
        ({"pool": "last"}, "pool must be one of mean, max, cls, pooled"),
    ],
)
def test_options_that_cannot_be_honoured(options, message):
    with pytest.raises(ConfigError, match=message):
        encoder_of(small_bert(), **options)


def test_models_that_cannot_be_read():
    with pytest.raises(ConfigError, match="pool='pooled' needs a model with a pooler"):
        encoder_of(small_bert(None, pooler=False), pool="pooled")
    with pytest.raises(ConfigError, match="without a vocabulary"):
        encoder_of(BertEncoder(small_bert(None).config))
