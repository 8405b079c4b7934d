"""BERT: the equations, masks, precisions, XLA, dropout, heads; a model is its configuration and its numbers."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError
from lbzoo.models.bert import BertClassifier, BertEncoder, BertForPreTraining, initial_weights, model_for
from lbzoo.models.bert_layers import Dropout, encode, first_token, fused
from lbzoo.models.config import ACTIVATIONS, HEADS, BertConfig
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from tests import bert_reference as reference

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=12,
    layer_norm_eps=1e-7,
)
LABELS = ("bad", "fair", "good")


def config_for(head, **changes):
    labels = LABELS if head == "classifier" else ()
    return dataclasses.replace(CONFIG, head=head, labels=labels, pooler=head != "masked-lm", **changes)


def made(head=None, dtype=None, **changes):
    """A model in which every weight matters, gains and biases too."""
    config = config_for(head, **changes)
    model = model_for(config)(config, seed=None, dtype=dtype)
    rng = np.random.default_rng(1)
    for name, variable in model.named_weights().items():
        variable.assign(rng.normal(float(name.endswith("gamma")), 0.3, variable.shape))
    return model


def values(model):
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


def batch(rows=3, time=9, seed=0, config=CONFIG):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, time + 1, rows)
    return {
        "ids": rng.integers(0, config.vocab_size, (rows, time)).astype(np.int32),
        "segments": rng.integers(0, config.type_vocab_size, (rows, time)).astype(np.int32),
        "mask": np.arange(time) < lengths[:, None],
    }


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_equals_the_equations_in_float64(act):
    model, given = made(hidden_act=act), batch()
    found = model(**given)
    expected = reference.encode(values(model), model.config, **given)[-1]
    np.testing.assert_allclose(found.hidden, expected, atol=2e-5)
    np.testing.assert_allclose(found.pooled, reference.pooled(values(model), expected), atol=1e-5)


def test_the_two_forms_of_gelu_are_kept_apart():
    exact, approximate = (made(hidden_act=act)(**batch()).hidden for act in ("gelu_erf", "gelu_tanh"))
    assert 1e-5 < np.abs(exact - approximate).max() < 1e-2


def test_defaults_are_one_segment_and_no_padding():
    model, ids = made(), batch()["ids"]
    plain = model(ids)
    said = model(ids, segments=np.zeros_like(ids), mask=np.ones_like(ids))
    np.testing.assert_allclose(plain.hidden, said.hidden, atol=1e-6)
    np.testing.assert_allclose(plain.hidden, reference.encode(values(model), CONFIG, ids)[-1], atol=2e-5)


def test_rows_may_begin_at_other_positions():
    model, given, starts = made(), batch(), np.array([0, 1, 3], np.int32)
    position = model.named_weights()["embeddings/position"]
    found, table = model(**given, starts=starts).hidden, position.numpy()
    for row, start in enumerate(starts):
        position.assign(np.roll(table, -start, axis=0))
        np.testing.assert_allclose(found[row], model(**given).hidden[row], atol=1e-5)


@pytest.mark.parametrize("head", [None, *HEADS])
def test_inputs_may_come_as_a_mapping(head):
    model, given = made(head), batch()
    np.testing.assert_array_equal(first(model(given)), first(model(**given)))


def first(result):
    return (result[0] if isinstance(result, tuple) else result).numpy()


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_what_is_masked_changes_nothing_and_a_row_without_tokens_stays_finite(dtype):
    model, given = made(dtype=dtype), batch(rows=4)
    given["mask"][0] = False
    other = {**given, "ids": np.where(given["mask"], given["ids"], 7)}
    one, two = model(**given).hidden.numpy(), model(**other).hidden.numpy()
    np.testing.assert_array_equal(one[given["mask"]], two[given["mask"]])
    assert np.isfinite(one).all() and one.dtype == np.float32


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 12))
def test_a_row_does_not_depend_on_its_company(seed, rows, time):
    model, given = _shared(), batch(rows, time, seed)
    together = model(**given).hidden.numpy()
    length = int(given["mask"][-1].sum())
    alone = model(**{name: value[-1:, :length] for name, value in given.items()}).hidden.numpy()
    np.testing.assert_allclose(together[-1, :length], alone[0], atol=1e-5, rtol=1e-4)


_kept = []


def _shared():
    if not _kept:
        _kept.append(made())
    return _kept[0]


@pytest.mark.parametrize("dtype, atol", [("mixed_float16", 0.02), ("mixed_bfloat16", 0.15)])
@pytest.mark.parametrize("head", [None, *HEADS])
def test_lower_precision_is_close_and_float32_at_the_border(head, dtype, atol):
    model, given = made(head), batch()
    low = model.in_precision(dtype)(given)
    for expected, found in zip(tf.nest.flatten(model(given)), tf.nest.flatten(low)):
        assert found.dtype == tf.float32
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, atol=atol * scale)
    assert all(variable.dtype == tf.float32 for variable in model.in_precision(dtype).variables)


def test_layer_norm_keeps_its_epsilon_in_float16():
    """1e-12 is zero in float16; a constant vector would give NaN there."""
    config = dataclasses.replace(CONFIG, layer_norm_eps=1e-12)
    model = BertEncoder(config, seed=None, dtype="mixed_float16")  # every weight, and so every vector, is zero
    assert np.isfinite(model(**batch()).hidden).all()


@pytest.mark.parametrize("head", [None, *HEADS])
def test_compiles_under_xla_and_equals_itself(head):
    model, given = made(head), batch()
    given = {name: tf.constant(value) for name, value in given.items()}
    compiled = tf.function(lambda **given: model(**given, training=True, seed=[3, 4]), jit_compile=True)
    for expected, found in zip(
        tf.nest.flatten(model(**given, training=True, seed=[3, 4])), tf.nest.flatten(compiled(**given))
    ):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_open_shapes_need_one_trace():
    model = made()
    signature = [tf.TensorSpec([None, None], tf.int32)]
    compiled = tf.function(lambda ids: model(ids).hidden, input_signature=signature)
    for rows, time in ((1, 1), (3, 12)):
        ids = batch(rows, time)["ids"]
        np.testing.assert_allclose(compiled(ids), model(ids).hidden, atol=1e-5)
    assert compiled.experimental_get_tracing_count() == 1


# heads


def test_masked_lm_is_tied_to_the_token_embedding():
    model, given = made("masked-lm"), batch()
    hidden = reference.encode(values(model), model.config, **given)[-1]
    np.testing.assert_allclose(model(**given), reference.masked_lm(values(model), CONFIG, hidden), atol=2e-4)


@pytest.mark.parametrize("head", ["masked-lm", "pretraining"])
def test_logits_at_positions_are_those_of_these_tokens(head):
    model, given = made(head), batch()
    positions = np.array([[0, 8], [3, 3], [1, 2]])
    wanted = np.take_along_axis(first(model(**given)), positions[:, :, None], axis=1)
    np.testing.assert_allclose(first(model(**given, positions=positions)), wanted, atol=1e-5)


def test_next_sentence_classes_and_numbers_stand_on_the_pooler():
    given = batch()
    for head, name, of in (
        ("pretraining", "nsp", lambda found: found.next_sentence),
        ("classifier", "classifier", lambda found: found),
        ("regressor", "regressor", lambda found: found[:, None]),
    ):
        model = made(head)
        w = values(model)
        hidden = reference.encode(w, model.config, **given)[-1]
        np.testing.assert_allclose(of(model(**given)), reference.dense(w, name, reference.pooled(w, hidden)), atol=2e-5)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_the_first_tokens_alone_come_to_the_same_with_fewer_operations(layers):
    config, given = CONFIG, batch()
    named, shape, found = made().named_weights(), given["ids"].shape, []
    for first_only in (False, True):

        def vectors(first_only=first_only):
            with tf.GradientTape() as tape:
                x = encode(fused(named, config), config, **given, layers=layers, first_only=first_only)
                x = x if first_only else first_token(x, shape)
                loss = tf.reduce_sum(tf.sin(x))
            gradients = tape.gradient(loss, list(named.values()), unconnected_gradients="zero")
            return x, [tf.convert_to_tensor(gradient) for gradient in gradients]

        found.append(tf.nest.flatten(vectors()))
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_a_classifiers_last_layer_runs_on_first_tokens_alone():
    graph = tf.function(made("classifier").call).get_concrete_function(**batch()).graph
    wide = CONFIG.intermediate_size
    rows = [
        op.outputs[0].shape[0]
        for op in graph.get_operations()
        if op.type == "MatMul" and op.outputs[0].shape[1] == wide
    ]
    assert rows == [27, 3]


def test_every_weight_of_a_head_learns():
    given = batch()
    for head in HEADS:
        model = made(head)
        with tf.GradientTape() as tape:
            loss = sum(
                tf.reduce_sum(tf.sin(part)) for part in tf.nest.flatten(model(**given, training=True, seed=[1, 2]))
            )
        grads = dict(zip(model.named_weights(), tape.gradient(loss, list(model.named_weights().values()))))
        assert not [name for name, grad in grads.items() if grad is None]
        for name, grad in grads.items():  # a bias of the key moves all scores of a query alike
            assert name.endswith("key/bias") or np.abs(tf.convert_to_tensor(grad)).max() > 0, name


def test_another_head_keeps_what_is_below_it():
    model, given = made("pretraining"), batch()
    w = values(model)
    masked = model.with_head("masked-lm")
    np.testing.assert_allclose(masked(**given), model(**given).masked_lm, atol=1e-6)
    assert "pooler/kernel" not in masked.named_weights()
    classifier = model.with_head("classifier", LABELS, seed=5)
    assert classifier.config.labels == LABELS and classifier.text == model.text
    for name, array in values(classifier).items():
        same = name in w and np.array_equal(w[name], array)
        assert same != name.startswith("classifier/")
    again = classifier.with_head("classifier", ("yes", "no"), seed=5)
    assert again(**given).shape == (3, 2)
    np.testing.assert_allclose(again.with_head(None)(**given).pooled, model.with_head(None)(**given).pooled, atol=1e-6)


@pytest.mark.parametrize("kind", [BertEncoder, BertForPreTraining, BertClassifier])
def test_a_class_is_for_one_head(kind):
    with pytest.raises(ConfigError, match="head="):
        kind(config_for("regressor"))


# dropout


def test_dropout_is_off_unless_training_and_follows_its_seed():
    model, given = made(), batch()
    quiet = model(**given).hidden.numpy()
    np.testing.assert_array_equal(model(**given, seed=[1, 2]).hidden, quiet)
    one, same, other = (model(**given, training=True, seed=seed).hidden.numpy() for seed in ([1, 2], [1, 2], [1, 3]))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - quiet).max() > 0.1 and np.abs(one - other).max() > 0.1
    still = made(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    np.testing.assert_allclose(still(**given, training=True, seed=[1, 2]).hidden, quiet, atol=1e-5)


def test_without_a_seed_dropout_follows_tensorflows():
    model, given = made(), batch()
    tf.random.set_seed(3)
    one, other = (model(**given, training=True).hidden.numpy() for _ in range(2))
    tf.random.set_seed(3)
    np.testing.assert_array_equal(model(**given, training=True).hidden, one)
    assert np.abs(one - other).max() > 0.1


def test_each_row_drops_the_same_wherever_it_is():
    """So that two workers with half a batch each take the step that one takes with all of it."""
    model, given = made(), batch(rows=4)
    seeds = np.array([[9, 100 + row] for row in range(4)])
    whole = model(**given, training=True, seed=seeds).hidden.numpy()
    half = model(**{name: value[2:] for name, value in given.items()}, training=True, seed=seeds[2:]).hidden.numpy()
    np.testing.assert_allclose(whole[2:], half, atol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_without_a_pattern(rate):
    drop, x = Dropout(True, tf.constant([3, 4]), 8), tf.ones([8, 40, 500])
    one, two = (drop(x, rate).numpy() == 0 for _ in range(2))
    for share, wanted in ((one.mean(), rate), (two.mean(), rate), ((one & two).mean(), rate**2)):
        assert abs(share - wanted) < 0.01
    for a, b in ((one[0], one[1]), (one[:, 0], one[:, 1]), (one[..., 0], one[..., 1])):  # rows, tokens, units
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.06
    assert np.abs(one.mean((0, 1)) - rate).max() < 0.15 and drop(x, rate).numpy().max() == np.float32(1 / (1 - rate))


# configuration and numbers


@pytest.mark.parametrize("head", [None, *HEADS])
def test_shapes_of_a_config_are_those_of_its_model(head):
    model = made(head)
    shapes = {name: tuple(variable.shape) for name, variable in model.named_weights().items()}
    assert shapes == model.config.shapes() and list(shapes) == list(model.config.shapes())
    assert len(model.variables) == len(shapes) == len(model.trainable_variables)
    assert BertConfig.from_dict(model.config.to_dict()) == model.config


def test_start_values_are_the_papers():
    config = dataclasses.replace(CONFIG, vocab_size=5000, head="pretraining")
    start = initial_weights(config, seed=4)
    token = start["embeddings/token"]
    assert np.abs(token).max() <= 0.04 and abs(token.std() - 0.02 * 0.8796) < 2e-4  # of a normal cut at 2 deviations
    assert not start["mlm/bias"].any() and (start["mlm/layer_norm/gamma"] == 1).all()
    np.testing.assert_array_equal(
        initial_weights(CONFIG, 4)["layer_1/ffn/inner/kernel"], start["layer_1/ffn/inner/kernel"]
    )
    assert not np.array_equal(start["layer_0/ffn/inner/kernel"], start["layer_1/ffn/inner/kernel"])


@pytest.mark.parametrize("head", [None, "classifier"])
def test_copies_and_pickles_are_equal(head):
    model = made(head)
    model.card, model.vocabulary = {"name": "x", "results": [{"value": 1}]}, Vocabulary([*SPECIAL, "a"])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model) and other.config == model.config and other.card == model.card
        assert other.vocabulary == model.vocabulary and other.text == model.text
        np.testing.assert_array_equal(first(other(**batch())), first(model(**batch())))


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers"),
        ({"num_attention_heads": 3}, "num_attention_heads"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"hidden_act": ["relu"]}, "hidden_act"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob"),
        ({"attention_probs_dropout_prob": float("nan")}, "attention_probs_dropout_prob"),
        ({"classifier_dropout": "none"}, "classifier_dropout"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"initializer_range": True}, "initializer_range"),
        ({"pooler": 1}, "pooler"),
        ({"head": "nsp"}, "head"),
        ({"head": "pretraining", "pooler": False}, "pooler"),
        ({"head": "classifier"}, "labels"),
        ({"head": "classifier", "labels": ["a"]}, "labels"),
        ({"head": "classifier", "labels": ["a", "a"]}, "labels"),
        ({"head": "classifier", "labels": "ab"}, "labels"),
        ({"labels": ["a", "b"]}, "labels"),
    ],
)
def test_a_configuration_is_checked(changes, word):
    with pytest.raises(ConfigError, match=rf"{word}.*Received"):
        dataclasses.replace(CONFIG, **changes)


def test_too_many_tokens_and_too_many_pieces_are_refused():
    with pytest.raises(ConfigError, match="at most 12 tokens. Received: 13"):
        made()(batch(time=13)["ids"])
    with pytest.raises(ConfigError, match="vocabulary"):
        BertEncoder(CONFIG, vocabulary=Vocabulary([*SPECIAL, *map(str, range(46))]))
