"""Compiled kernels of training: the values and gradients of the operations, in every precision, under XLA."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lbzoo.models.bert_layers import _ACTIVATIONS, _KERNELS, Dropout, activate
from lbzoo.models.config import ACTIVATIONS
from tests.test_bert import batch, config_for, made


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """Kernels are not compiled for one."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [])


X = np.concatenate([np.linspace(-9, 9, 201), [-60.0, 60.0, 1e-3, -1e-3]]).astype(np.float32)


def value_and_gradient(function, x, dy):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x, dy)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 1e-2)])
@pytest.mark.parametrize("act", ACTIVATIONS)
def test_values_and_gradients_are_those_of_float64(act, dtype, tolerance):
    x, dy = (tf.cast(tf.constant(values), dtype) for values in (X, np.cos(X)))
    expected = value_and_gradient(_ACTIVATIONS[act], tf.cast(x, tf.float64), tf.cast(dy, tf.float64))
    for found, wanted in zip(value_and_gradient(_KERNELS[act], x, dy), expected):
        assert found.dtype == dtype
        np.testing.assert_allclose(tf.cast(found, tf.float64), wanted, rtol=tolerance, atol=tolerance)


def test_only_training_takes_the_kernel():
    """Inference keeps the operation that TensorFlow joins with the product before it."""
    for training in (False, True):
        graph = tf.function(lambda x, training=training: activate(config_for(None), x, training))
        nodes = graph.get_concrete_function(tf.TensorSpec([4, 8])).graph.as_graph_def().node
        assert any("PartitionedCall" in node.op for node in nodes) is training


def test_training_without_dropout_takes_it_as_well():
    model, given = made(None), batch()
    calls = []
    for more in ({}, {"training": True, "dropout": False}):
        graph = tf.function(lambda more=more: model(**given, **more).hidden).get_concrete_function().graph
        calls.append(sum("PartitionedCall" in node.op for node in graph.as_graph_def().node))
    assert calls == [0, config_for(None).num_hidden_layers]


def gradients(dtype, jit_compile=False):
    model, given = made("classifier", dtype=dtype), batch()

    def each():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(**given, training=True, seed=[1, 2])[:, 0])
        return tape.gradient(loss, list(model.named_weights().values()))

    found = tf.function(each, autograph=False, jit_compile=jit_compile)()
    return {name: tf.convert_to_tensor(g).numpy() for name, g in zip(model.named_weights(), found)}


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("mixed_bfloat16", 0.05)])
def test_a_model_learns_the_same_by_operations_by_kernels_and_compiled_as_a_whole(monkeypatch, dtype, tolerance):
    kernels, whole = gradients(dtype), gradients(dtype, jit_compile=True)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [kind])
    for name, wanted in gradients(dtype).items():
        least = 2e-2 if name.endswith("key/bias") else 1e-2  # whose gradient is rounding alone
        atol = tolerance * max(np.abs(wanted).max(), least)
        np.testing.assert_allclose(kernels[name], wanted, atol=atol, err_msg=name)
        np.testing.assert_allclose(whole[name], wanted, atol=atol, err_msg=name)


def test_shapes_that_are_not_fixed_compile_nothing():
    """Fine-tuning has a shape for every length of a batch."""

    def both(x, rows):
        drop = Dropout(True, tf.stack([rows, rows], 1), None)
        return drop(_KERNELS["gelu_tanh"](x), 0.5)

    open_graph = tf.function(both).get_concrete_function(tf.TensorSpec([None, 8]), tf.TensorSpec([None], tf.int32))
    assert not any("PartitionedCall" in node.op for node in open_graph.graph.as_graph_def().node)
    x, rows = tf.constant(np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)), tf.range(3)
    np.testing.assert_allclose(open_graph(x, rows), both(x, rows), atol=1e-6)


def test_the_gradient_of_dropout_passes_where_values_do():
    x = tf.ones([3, 4, 5])
    y, gradient = value_and_gradient(lambda x: Dropout(True, [1, 2], 3)(x, 0.5), x, tf.ones_like(x))
    np.testing.assert_array_equal(y, gradient)
    assert set(np.unique(gradient)) == {0.0, 2.0}
