"""A wider start: the same function, and new units that learn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lbzoo.checkpoint import load
from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel
from training import sample_reviews
from training.objectives import SentimentReadOut, language_model_loss
from training.publish import export
from training.recipes import recipe
from training.settings import with_settings
from training.trainer import Trainer, open_stream
from training.widen import long_memories, widened

IDS = np.random.default_rng(3).integers(0, 256, (4, 40)).astype(np.int32)


def pair(units: int, wide: int, weight_norm: bool = True, memory: int = 0):
    narrow = MLSTMLanguageModel(MLSTMConfig(units=units, embedding_dim=8, weight_norm=weight_norm), seed=1)
    model = MLSTMLanguageModel(MLSTMConfig(units=wide, embedding_dim=8, weight_norm=weight_norm), seed=2)
    for name, value in widened(narrow, model.config, seed=5, memory=memory).items():
        model.named_weights()[name].assign(value)
    return narrow, model


@pytest.mark.parametrize("weight_norm", [True, False])
@pytest.mark.parametrize("wide", [8, 12, 16])
def test_a_widened_model_gives_the_same_logits(wide, weight_norm):
    narrow, model = pair(8, wide, weight_norm, memory=50)
    np.testing.assert_allclose(model(IDS)[0], narrow(IDS)[0], atol=1e-5, rtol=1e-4)


def test_old_units_keep_their_states_and_new_ones_have_their_own():
    narrow, model = pair(8, 12)
    (_, (c, h)), (_, (wide_c, wide_h)) = narrow(IDS), model(IDS)
    np.testing.assert_allclose(wide_c[:, :8], c, atol=1e-5)
    np.testing.assert_allclose(wide_h[:, :8], h, atol=1e-5)
    assert np.std(wide_c[:, 8:], axis=0).min() > 0


def test_the_ways_out_of_new_units_have_a_gradient_from_the_first_step():
    _, model = pair(8, 12)
    with tf.GradientTape() as tape:
        loss = language_model_loss(model(IDS)[0], IDS)
    weights = model.named_weights()
    gradients = dict(zip(("wh", "wmh", "out_w"), tape.gradient(loss, [weights[k] for k in ("wh", "wmh", "out_w")])))
    for name, gradient in gradients.items():
        rows = np.abs(gradient.numpy()[8:]).sum(axis=1)
        assert (rows > 0).all(), name


def test_fewer_units_are_refused():
    narrow = MLSTMLanguageModel(MLSTMConfig(units=8))
    with pytest.raises(ConfigError, match="fewer units. Received: 4; it has 8"):
        widened(narrow, MLSTMConfig(units=4), seed=0)


def test_another_form_is_refused():
    narrow = MLSTMLanguageModel(MLSTMConfig(units=8, embedding_dim=16))
    with pytest.raises(ConfigError, match="same form.*embedding_dim=16"):
        widened(narrow, MLSTMConfig(units=8, embedding_dim=64), seed=0)


def test_a_run_starts_from_a_narrower_checkpoint_and_its_read_out(tmp_path):
    narrow = MLSTMLanguageModel(MLSTMConfig(units=8, embedding_dim=16), text="reviews", seed=1)
    read_out = SentimentReadOut(8)
    read_out.w.assign(np.linspace(-1, 1, 8))
    read_out.b.assign(0.5)
    export(narrow, read_out, tmp_path / "narrow")
    config = with_settings(recipe("tiny"), {"model.units": "12", "init_from": str(tmp_path / "narrow")})
    trainer = Trainer(config, open_stream(config, sample_reviews.write(tmp_path / "shards")))
    expected = load(tmp_path / "narrow")  # what float16 left of the weights
    np.testing.assert_allclose(trainer.model(IDS)[0], expected(IDS)[0], atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(trainer.read_out.w, [*np.linspace(-1, 1, 8), 0, 0, 0, 0], atol=1e-6)
    assert float(trainer.read_out.b) == 0.5


def test_long_memories_are_given_to_half_of_the_new_units():
    bias = long_memories(np.zeros(40, np.float32), units=10, memory=100, seed=1, first=4)
    forget, put_in = bias[10:20], bias[:10]
    assert (np.flatnonzero(forget) == [4, 5, 6]).all()
    assert (forget[4:7] <= np.log(99.01)).all()
    np.testing.assert_array_equal(put_in, -forget)
