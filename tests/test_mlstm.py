"""The model: its equations, both kernels, weight norm, masks, resets and precisions."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTM, MLSTMLanguageModel, initial_weights
from tests import mlstm_reference as reference


def made(units=16, kernel="fast", dtype="float32", scale=0.5, seed=3, **config):
    """A model with weights large enough that gates and gains all matter."""
    model = MLSTMLanguageModel(MLSTMConfig(units=units, embedding_dim=8, **config), kernel=kernel, dtype=dtype)
    rng = np.random.default_rng(seed)
    for name, variable in model.named_weights().items():
        size = scale if len(variable.shape) == 1 or units <= 64 else scale * units**-0.5
        variable.assign(rng.normal(size=variable.shape) * size + (1.0 if name.startswith("g") else 0.0))
    return model


def given_batch(rows, steps, units, vocab=256, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab, (rows, steps)).astype(np.int32)
    state = tuple(rng.normal(size=(rows, units)).astype(np.float32) for _ in "ch")
    return ids, state, rng.random((rows, steps)) > 0.3, rng.random((rows, steps)) > 0.8


def values(model):
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


@pytest.mark.parametrize("kernel", ["fast", "plain"])
@pytest.mark.parametrize("weight_norm", [True, False])
def test_equals_the_equations_in_float64(kernel, weight_norm):
    model = made(kernel=kernel, weight_norm=weight_norm)
    ids, state, mask, reset = given_batch(3, 20, 16)
    logits, (c, h) = model(ids, state=state, mask=mask, reset=reset)
    expected, _, _, (c_expected, h_expected) = reference.run(values(model), ids, *state, mask=mask, reset=reset)
    np.testing.assert_allclose(logits, expected, atol=2e-5)
    np.testing.assert_allclose(c, c_expected, atol=1e-5)
    np.testing.assert_allclose(h, h_expected, atol=1e-5)


@pytest.mark.parametrize("collect", ["cell", "hidden", None])
def test_run_collects_the_state_of_every_step(collect):
    model = made()
    ids, state, mask, reset = given_batch(2, 9, 16)
    collected, (c, h) = model.run(ids, state, mask=mask, reset=reset, collect=collect)
    _, hs, cs, (c_expected, h_expected) = reference.run(values(model), ids, *state, mask=mask, reset=reset)
    expected = {"cell": cs, "hidden": hs, None: None}[collect]
    if collect is None:
        assert collected is None
    else:
        np.testing.assert_allclose(collected, expected, atol=1e-5)
    np.testing.assert_allclose(c, c_expected, atol=1e-5)
    np.testing.assert_allclose(h, h_expected, atol=1e-5)


def outputs_and_gradients(model, batch, masked):
    ids, state, mask, reset = batch
    state = tuple(tf.constant(s) for s in state)
    extras = dict(mask=mask, reset=reset) if masked else {}
    with tf.GradientTape() as tape:
        tape.watch(state)
        logits, (c, h) = model(ids, state=state, **extras)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(np.roll(ids, 1, 1), logits))
        loss += tf.reduce_mean(c * h)
    return (logits, c, h), tape.gradient(loss, list(model.named_weights().values()) + list(state))


@pytest.mark.parametrize("steps", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("masked", [False, True])
def test_fast_kernel_equals_plain_autodiff_for_every_length(steps, masked):
    compare_kernels(units=24, rows=3, steps=steps, masked=masked)


@pytest.mark.parametrize("units", [1, 2, 7, 128, pytest.param(1024, marks=pytest.mark.slow)])
def test_fast_kernel_equals_plain_autodiff_for_every_width(units):
    compare_kernels(units=units, rows=2, steps=12, masked=True)


def compare_kernels(units, rows, steps, masked):
    batch = given_batch(rows, steps, units)
    fast, fast_gradients = outputs_and_gradients(made(units), batch, masked)
    plain, plain_gradients = outputs_and_gradients(made(units, kernel="plain"), batch, masked)
    for a, b in zip(fast, plain):
        np.testing.assert_allclose(a, b, atol=1e-5)
    for a, b in zip(fast_gradients, plain_gradients):
        # 1e-9: under weight norm the gradient of a 1 x 1 matrix is zero but for rounding
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b) + 1e-9


def test_plain_gradient_agrees_with_finite_differences():
    model = made(units=3, kernel="plain")
    ids, state, mask, reset = given_batch(2, 6, 3)
    _, gradients = outputs_and_gradients(model, (ids, state, mask, reset), masked=True)

    def loss(weights):
        logits, _, _, (c, h) = reference.run(weights, ids, *state, mask=mask, reset=reset)
        rows = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        picked = np.take_along_axis(rows, np.roll(ids, 1, 1)[..., None], -1)
        return -picked.mean() + (c * h).mean()

    for (name, variable), gradient in zip(model.named_weights().items(), gradients):
        weights = {k: v.astype(np.float64) for k, v in values(model).items()}
        direction = np.random.default_rng(5).normal(size=variable.shape)
        ahead, behind = dict(weights), dict(weights)
        ahead[name], behind[name] = weights[name] + 1e-5 * direction, weights[name] - 1e-5 * direction
        slope = (loss(ahead) - loss(behind)) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * direction), slope, atol=1e-5, rtol=1e-3)


@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 9), st.integers(2, 40), st.integers(0, 99))
def test_any_shape_and_vocabulary(rows, steps, units, vocab, seed):
    model = made(units, vocab_size=vocab, seed=seed)
    ids, state, mask, reset = given_batch(rows, steps, units, vocab, seed)
    logits, (c, _) = model(ids, state=state, mask=mask, reset=reset)
    expected, _, _, (c_expected, _) = reference.run(values(model), ids, *state, mask=mask, reset=reset)
    assert logits.shape == (rows, steps, vocab) and logits.dtype == tf.float32
    np.testing.assert_allclose(logits, expected, atol=5e-5)
    np.testing.assert_allclose(c, c_expected, atol=1e-5)


@pytest.mark.parametrize("kernel", ["fast", "plain"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_mask_carries_the_state_bit_by_bit(kernel, dtype):
    model = made(kernel=kernel, dtype=dtype)
    ids, state, _, _ = given_batch(4, 11, 16)
    _, (c, h) = model(ids, state=state, mask=np.zeros(ids.shape, bool))
    np.testing.assert_array_equal(c, state[0])
    np.testing.assert_array_equal(h, state[1])


def test_a_reset_forgets_everything_before_it():
    model = made()
    ids, state, _, _ = given_batch(2, 10, 16)
    reset = np.zeros(ids.shape, bool)
    reset[:, 4] = True
    logits, _ = model(ids, state=state, reset=reset)
    alone, _ = model(ids[:, 4:])
    np.testing.assert_allclose(logits[:, 4:], alone, atol=1e-6)


def test_two_windows_with_carried_state_equal_one():
    model = made()
    ids, state, _, _ = given_batch(2, 30, 16)
    whole, end = model(ids, state=state)
    first, between = model(ids[:, :13], state=state)
    second, end_of_two = model(ids[:, 13:], state=between)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, atol=1e-6)
    np.testing.assert_allclose(end_of_two[0], end[0], atol=1e-6)


def test_folding_and_unfolding_change_no_output():
    model = made()
    ids, state, mask, reset = given_batch(3, 25, 16)
    expected = model(ids, state=state, mask=mask, reset=reset)[0]
    folded = model.folded()
    again = folded.unfolded()
    assert not folded.config.weight_norm and "gx" not in folded.named_weights()
    assert again.config.weight_norm and folded.folded() is folded and model.unfolded() is model
    for other in (folded, again):
        np.testing.assert_allclose(other(ids, state=state, mask=mask, reset=reset)[0], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_reduced_precision_stays_close_and_keeps_float32_where_it_matters(dtype):
    model, exact = made(dtype=dtype), made()
    ids, state, mask, reset = given_batch(3, 25, 16)
    logits, (c, h) = model(ids, state=state, mask=mask, reset=reset)
    assert logits.dtype == c.dtype == h.dtype == tf.float32
    assert all(v.dtype == tf.float32 for v in model.named_weights().values())
    assert model.mlstm.matrix("wh").dtype == tf.float32
    np.testing.assert_allclose(logits, exact(ids, state=state, mask=mask, reset=reset)[0], atol=0.15)
    _, gradients = outputs_and_gradients(model, (ids, state, mask, reset), masked=True)
    _, expected = outputs_and_gradients(exact, (ids, state, mask, reset), masked=True)
    for a, b in zip(gradients, expected):
        assert a.dtype == tf.float32 and np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_forward_and_backward_compile_under_xla_with_static_shapes(dtype):
    model = made(dtype=dtype)
    batch = given_batch(2, 7, 16)
    outputs, gradients = outputs_and_gradients(model, batch, masked=True)
    compiled = tf.function(lambda: outputs_and_gradients(model, batch, masked=True), jit_compile=True)
    outputs_compiled, gradients_compiled = compiled()
    loose = dtype != "float32"
    np.testing.assert_allclose(outputs_compiled[0], outputs[0], atol=0.1 if loose else 1e-5)
    for a, b in zip(gradients_compiled, gradients):
        assert np.linalg.norm(a - b) <= (0.05 if loose else 1e-5) * np.linalg.norm(b)


def test_start_values_are_seeded_and_orthogonal():
    config = MLSTMConfig(units=12)
    first, again, other = (initial_weights(config, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["wmh"], other["wmh"])
    for block in np.split(first["wh"], 4, axis=1) + [first["wmh"]]:
        np.testing.assert_allclose(block.T @ block, np.eye(12), atol=1e-5)
    np.testing.assert_allclose(first["gx"], np.linalg.norm(first["wx"], axis=0), rtol=1e-6)


def test_a_model_without_output_has_states_but_no_logits():
    model = made(output=False)
    ids, state, _, _ = given_batch(1, 4, 16)
    assert model.run(ids, state, collect="cell")[0].shape == (1, 4, 16)
    with pytest.raises(ConfigError, match="output=False"):
        model(ids, state=state)


@pytest.mark.parametrize("bad", [0, -1, 2.5, "16", True, None])
def test_sizes_that_are_not_positive_integers_are_refused(bad):
    with pytest.raises(ConfigError, match="units.*Received"):
        MLSTMConfig(units=bad)


def test_config_reads_back_and_refuses_what_it_does_not_know():
    config = MLSTMConfig(units=5, output=False)
    assert MLSTMConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match="Received: unknown layers"):
        MLSTMConfig.from_dict({"units": 5, "layers": 2})
    with pytest.raises(ConfigError, match="units"):
        MLSTMConfig.from_dict({})


def test_unknown_kernel_and_collect_are_refused():
    with pytest.raises(ConfigError, match="kernel"):
        MLSTM(MLSTMConfig(units=2), kernel="slow")
    with pytest.raises(ConfigError, match="collect"):
        made().run(np.zeros((1, 1), np.int32), collect="both")


def test_a_model_survives_pickle_and_deepcopy():
    model = made(dtype="mixed_bfloat16", output=False)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other is not model and other.config == model.config and other.mlstm.compute_dtype == "bfloat16"
        for name, value in values(model).items():
            np.testing.assert_array_equal(value, other.named_weights()[name])
