"""The mLSTM under fine-tuning: what trains is what is read, and gradients end where the window begins."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lbzoo.errors import ConfigError
from lbzoo.transfer.encoders import encoder_of
from lbzoo.transfer.mlstm_encoder import MLSTMEncoder
from tests.order_task import small_model

ROWS = [b"abcdefgh", b"", b"xy", b"the longest of them, with a start that is carried in" * 8, b"abcdefghi", b"z"]


@pytest.mark.parametrize("window", [1, 8, 4096])
def test_what_is_trained_is_what_is_read(window):
    encoder = encoder_of(small_model(), window=window)
    features, _ = encoder.forward(*map(tf.constant, encoder.batch(ROWS)))
    np.testing.assert_allclose(features.numpy(), encoder.read(ROWS, 4), atol=1e-5)
    assert encoder.read(ROWS, 4)[1].tolist() == [0] * encoder.width
    shapes = [spec.shape for spec in encoder.signature]
    assert all(shape.is_compatible_with(array.shape) for shape, array in zip(shapes, encoder.batch(ROWS)))
    for array in encoder.batch([b"", b""]):
        assert len(array) == 2 and np.isfinite(array).all()


def test_gradients_go_back_through_the_window_and_no_further():
    for window, reached in ((3, b"fgh"), (8, b"abcdefgh"), (99, b"abcdefgh")):
        encoder = encoder_of(small_model(), window=window)
        batch = encoder.batch([b"abcdefgh"])
        (_, [embedding]) = encoder.groups()
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(encoder.forward(*map(tf.constant, batch))[0])
        gradient = tf.convert_to_tensor(tape.gradient(total, embedding)).numpy()
        assert bytes(np.flatnonzero(np.abs(gradient).sum(axis=1)).tolist()) == reached


def test_the_language_loss_is_the_mean_over_the_bytes_of_the_window():
    encoder = encoder_of(small_model(), window=8)
    rows = [b"abc", b"de", b"f", b""]
    _, loss = encoder.forward(*map(tf.constant, encoder.batch(rows)))
    expected = []
    for row in rows[:2]:
        ids = tf.constant([list(row)])
        logs = tf.nn.log_softmax(encoder.model(ids)[0])[0].numpy()
        expected += [-logs[t, row[t + 1]] for t in range(len(row) - 1)]
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)
    assert float(encoder.forward(*map(tf.constant, encoder.batch([b"f", b""])))[1]) == 0


def test_every_weight_is_in_one_group():
    encoder = encoder_of(small_model())
    found = [v for group in encoder.groups() for v in group] + encoder.language_model()
    assert sorted(map(id, found)) == sorted(map(id, encoder.model.named_weights().values()))
    with pytest.raises(ConfigError, match="output layer"):
        encoder_of(small_model(output=False)).language_model()


def test_it_works_on_a_copy():
    for model in (small_model(), small_model().folded()):
        before = model.folded().named_weights()["wh"].numpy()
        encoder = encoder_of(model, dtype="bfloat16")
        assert isinstance(encoder, MLSTMEncoder) and not encoder.model.config.weight_norm
        assert encoder.model.mlstm.compute_dtype == "bfloat16"
        for group in encoder.groups():
            for variable in group:
                variable.assign_add(tf.ones_like(variable))
        np.testing.assert_array_equal(model.folded().named_weights()["wh"].numpy(), before)


@pytest.mark.parametrize("options", [{"dtype": "float16"}, {"window": 0}, {"window": 1.5}, {"window": True}])
def test_options_that_cannot_be_honoured(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        encoder_of(small_model(), **options)
