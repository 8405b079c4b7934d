"""BERT's training step: one mean over all predicted tokens, dropout by row, several replicas."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lbzoo.errors import ConfigError
from lbzoo.models.bert import BertEncoder, BertForMaskedLM
from tests.mirrored_bert import VOCABULARY, MadeUp, small, trainer
from training.bert_recipes import BertOptimizerConfig
from training.bert_trainer import BertTrainer, make_optimizer
from training.settings import with_settings


@pytest.fixture(scope="module")
def results(root):
    command = [sys.executable, "-m", "tests.mirrored_bert"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_replicas_and_micro_batches_equal_one_large_batch(results):
    """With dropout on, and with as many tokens to predict in the last row as in all others of its replica."""
    for one, many in zip(results["one"]["logged"], results["two in pieces"]["logged"]):
        assert one.keys() == many.keys()
        for name, value in one.items():
            np.testing.assert_allclose(many[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    for name, weight in results["one"]["weights"].items():
        np.testing.assert_allclose(
            results["two in pieces"]["weights"][name], weight, rtol=1e-3, atol=2e-5, err_msg=name
        )


def test_the_loss_is_the_mean_over_all_predicted_tokens_and_the_mean_over_rows():
    config = small(dropout=False)
    run = trainer(config)
    batch = MadeUp(config.first).batch(0)
    logits = run.model(batch.ids, batch.segments, batch.mask, positions=batch.positions, starts=batch.starts)
    each = -np.take_along_axis(tf.nn.log_softmax(logits.masked_lm).numpy(), batch.labels[..., None], -1)[..., 0]
    expected = (each * batch.weights).sum() / batch.weights.sum()
    right = (logits.masked_lm.numpy().argmax(-1) == batch.labels) * batch.weights
    following = -np.take_along_axis(tf.nn.log_softmax(logits.next_sentence).numpy(), batch.following[:, None], -1)
    values = run.step(0)
    np.testing.assert_allclose(values["masked_lm"], expected, rtol=1e-5)
    np.testing.assert_allclose(values["next_sentence"], following.mean(), rtol=1e-5)
    np.testing.assert_allclose(values["loss"], expected + following.mean(), rtol=1e-5)
    np.testing.assert_allclose(values["masked_lm_accuracy"], right.sum() / batch.weights.sum(), rtol=1e-5)
    assert abs(each.mean() - expected) > 1e-4  # each row's own mean would be another number


def test_every_row_drops_by_its_number_in_the_whole_run():
    config = small()
    run = trainer(config)
    assert [run.place(number) for number in range(5)] == [(0, 0, 0), (0, 1, 8), (0, 2, 16), (1, 0, 24), (1, 1, 28)]
    frozen = with_settings(config, {"optimizer.learning_rate": "1e-12", "optimizer.weight_decay": "0"})
    same = MadeUp(config.first).batch(0)
    run = trainer(frozen)
    run.streams[0].batch = lambda step, rows: same
    losses = [float(run.step(t)["loss"]) for t in (0, 1, 0)]
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-6)
    run = trainer(dataclasses.replace(frozen, dropout=False))
    run.streams[0].batch = lambda step, rows: same
    np.testing.assert_allclose(*(float(run.step(t)["loss"]) for t in (0, 1)), rtol=1e-6)


def test_it_learns_in_half_precision():
    config = small(dropout=False, precision="mixed_float16", first=dataclasses.replace(small().first, steps=12))
    run, full = trainer(config), trainer(dataclasses.replace(config, precision="float32"))
    run.streams[0].batch = full.streams[0].batch = lambda step, rows: MadeUp(config.first).batch(0)
    half = [float(run.step(t)["loss"]) for t in range(12)]
    assert half[-1] < half[0] - 0.3
    assert float(run.step(0)["loss_scale"]) == config.loss_scale.start
    np.testing.assert_allclose(half, [float(full.step(t)["loss"]) for t in range(12)], rtol=2e-2)


def test_a_run_starts_from_a_checkpoint_of_the_same_shape(tmp_path):
    config = small()
    given = BertForMaskedLM(
        dataclasses.replace(config.model, head="masked-lm", pooler=False), vocabulary=VOCABULARY, seed=7
    )
    given.save_pretrained(tmp_path / "given")
    run = trainer(dataclasses.replace(config, init_from=str(tmp_path / "given")))
    names = run.model.named_weights()
    for name, weight in given.named_weights().items():
        np.testing.assert_array_equal(names[name].numpy(), weight.numpy())
    assert set(names) > set(given.named_weights())
    other = BertEncoder(dataclasses.replace(config.model, head=None, num_hidden_layers=2), vocabulary=VOCABULARY)
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match="same shape and vocabulary.*other"):
        trainer(dataclasses.replace(config, init_from=str(tmp_path / "other")))


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ConfigError, match="no such optimizer.*'adam'.*lamb"):
        make_optimizer(BertOptimizerConfig("adam", 1e-3, 0), {})
    config = dataclasses.replace(small(), model=dataclasses.replace(small().model, vocab_size=10))
    with pytest.raises(ConfigError, match="vocabulary must fit"):
        trainer(config)
    config = dataclasses.replace(small(), first=dataclasses.replace(small().first, micro_rows=3))
    with pytest.raises(ConfigError, match="first.rows=8, 1 devices, micro_rows=3"):
        BertTrainer(config, [], VOCABULARY)
