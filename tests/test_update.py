"""The update on one replica: loss scaling, accumulation, compilation. `test_update_replicas.py` has several."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from lbzoo._keras import adam
from lbzoo.errors import ConfigError, TrainingError
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.optimizers.loss_scale import LossScale, LossScaleConfig, loss_scale_for
from lbzoo.optimizers.schedules import LinearDecay
from lbzoo.optimizers.update import Update
from tests.conftest import seeded
from training.data import Batch
from training.recipes import recipe
from training.trainer import Trainer


def small_update(**options):
    variable = tf.Variable([1.0, -2.0])
    return variable, Update([variable], adam(0.1), LinearDecay(0.1, 100), 1.0, **options)


def squares_step(update, variable):
    """The compiled step on the sum of squares, times a factor that can poison it."""

    def loss(factor):
        return tf.reduce_sum(variable**2) * factor[0], None

    step = tf.function(lambda factor: update(loss, factor))
    return lambda factor: step(tf.constant([factor], tf.float32))


def test_the_loss_scale_moves_as_its_table_says():
    scale = LossScale(LossScaleConfig(start=8.0, growth_interval=2, factor=2.0, floor=1.0, cap=16.0))
    table = [("ok", 8, 1), ("ok", 16, 0), ("ok", 16, 1), ("ok", 16, 0), ("bad", 8, 0), ("bad", 4, 0), ("ok", 4, 1)]
    table += [("bad", 2, 0), ("bad", 1, 0), ("bad", 1, 0)]
    for event, value, good in table:
        (scale.after_update if event == "ok" else scale.after_skip)()
        assert (float(scale.value), int(scale.good)) == (value, good)


@pytest.mark.parametrize(
    "bad",
    [{"start": 0.5}, {"start": 2.0**30}, {"floor": 0.0}, {"factor": 1.0}, {"growth_interval": 0}, {"cap": np.inf}],
)
def test_a_loss_scale_that_makes_no_sense_is_refused(bad):
    with pytest.raises(ConfigError, match="Received"):
        LossScaleConfig(**bad)


def test_only_float16_is_scaled():
    config = LossScaleConfig()
    assert loss_scale_for("mixed_float16", config) is config
    assert loss_scale_for("mixed_bfloat16", config) is None and loss_scale_for("float32", config) is None


def test_scaling_changes_nothing_in_float32():
    def run(loss_scale):
        variable, update = small_update(loss_scale=loss_scale)
        step = squares_step(update, variable)
        return [step(1.0)[1].numpy() for _ in range(3)] + [variable.numpy()]

    for plain, scaled in zip(run(None), run(LossScaleConfig())):
        np.testing.assert_array_equal(plain, scaled)


def test_scaling_saves_a_gradient_that_float16_would_lose():
    def loss(variable):
        halves = tf.cast(variable, tf.float16) * tf.constant(2.0**-14, tf.float16)
        return tf.reduce_sum(tf.cast(halves, tf.float32)) * 2.0**-14, None

    for loss_scale, expected in ((None, 0.0), (LossScaleConfig(), 2**0.5 * 2.0**-28)):
        variable, update = small_update(loss_scale=loss_scale)
        _, norm, _ = update(lambda variable=variable: loss(variable))
        np.testing.assert_allclose(norm, expected, rtol=1e-6)


def test_an_overflow_halves_the_scale_and_changes_nothing_else():
    variable, update = small_update(loss_scale=LossScaleConfig(start=4.0, growth_interval=2))
    step = squares_step(update, variable)
    step(1.0)
    watched = (variable, *update.optimizer.variables())
    before = [v.numpy().copy() for v in watched]
    for scale in (2, 1, 1):
        step(np.inf)
        assert float(update.scaler.value) == scale and int(update.scaler.good) == 0
    for old, new in zip(before, watched):
        np.testing.assert_array_equal(old, new.numpy())
    step(1.0)
    step(1.0)
    assert float(update.scaler.value) == 2 and int(update.optimizer.iterations) == 3 and int(update.skipped) == 3


def test_an_unknown_dtype_of_the_gradients_on_their_way_is_refused():
    with pytest.raises(ConfigError, match="float32, float16, bfloat16. Received: reduce_dtype='int8'"):
        small_update(reduce_dtype="int8")


def test_a_run_says_in_which_dtype_its_gradients_travel():
    assert trainer(reduce_dtype="bfloat16").update.reduce_dtype == "bfloat16"
    assert trainer().update.reduce_dtype == "float32"


def test_ten_skips_in_a_row_name_the_step_the_worker_and_the_scale():
    variable, update = small_update(loss_scale=LossScaleConfig())
    step = squares_step(update, variable)
    step(1.0)
    for _ in range(10):
        update.check(limit=10)
        step(np.nan)
    with pytest.raises(TrainingError, match=r"10 steps in a row.*step 11 .*optimizer step 2.*worker 0.*scale.* 32\."):
        update.check(limit=10)


def test_a_loss_that_is_not_finite_skips_the_step_too():
    variable, update = small_update()
    update(lambda: (tf.reduce_sum(variable) + tf.stop_gradient(variable[0] / 0), None))
    assert int(update.skipped) == 1 and int(update.optimizer.iterations) == 0


def test_the_loss_scale_is_in_the_checkpoint_only_where_there_is_one(tmp_path):
    _, update = small_update()
    assert sorted(update.state()) == ["optimizer", "skipped", "skipped_in_a_row"]
    _, update = small_update(loss_scale=LossScaleConfig())
    update.scaler.value.assign(64.0)
    update.scaler.good.assign(7)
    path = tf.train.Checkpoint(**update.state()).write(str(tmp_path / "state"))
    _, other = small_update(loss_scale=LossScaleConfig())
    tf.train.Checkpoint(**other.state()).read(path).assert_existing_objects_matched()
    assert (float(other.scaler.value), int(other.scaler.good)) == (64.0, 7)


def test_no_limit_leaves_the_gradient_as_it_is():
    variable = tf.Variable([30.0, -40.0])
    update = Update([variable], adam(0.1), LinearDecay(0.1, 100), clip_norm=0.0)
    update(lambda: (tf.reduce_sum(variable**2) / 2, None))
    np.testing.assert_allclose(update.optimizer.get_slot(variable, "m"), [3.0, -4.0], rtol=1e-6)


def test_what_makes_no_update_is_refused():
    used, unused = tf.Variable(1.0, name="used"), tf.Variable(1.0, name="unused")
    with pytest.raises(ConfigError, match="unused"):
        Update([used, unused], adam(0.1), LinearDecay(0.1, 100), 1.0)(lambda: (used * 2, None))
    for bad in ({"accumulate": 0}, {"clip_norm": -1.0}):
        with pytest.raises(ConfigError, match="Received"):
            Update([used], adam(0.1), LinearDecay(0.1, 100), **{"clip_norm": 1.0, **bad})


def language_model_step(config, ids, pieces):
    """One update of a small model from fixed weights -> (loss, norm, Adam's first moments, extra)."""
    model = seeded(MLSTMLanguageModel(config))
    update = Update(list(model.trainable_variables), adam(1e-3), LinearDecay(1e-3, 100), 0.0, accumulate=pieces)

    def loss(ids, state):
        logits, state = model(ids[:, :-1], state=state)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], logits)
        return tf.reduce_mean(each), {"mean": tf.reduce_mean(each), "rows": len(ids), "none": None, "state": state}

    state = model.initial_state(ids.shape[0])
    step = tf.function(lambda ids: update(loss, ids, state))
    value, norm, extra = step(tf.constant(ids))
    assert int(update.optimizer.iterations) == 1  # the schedule counts optimizer steps
    moments = np.concatenate([update.optimizer.get_slot(v, "m").numpy().ravel() for v in model.trainable_variables])
    return float(value), float(norm), moments, extra


def test_accumulation_equals_the_large_batch(tiny_model):
    ids = np.random.default_rng(3).integers(0, 256, (12, 9)).astype(np.int32)
    loss, norm, moments, extra = language_model_step(tiny_model.config, ids, 1)
    for pieces in (3, 4):
        sums = language_model_step(tiny_model.config, ids, pieces)
        np.testing.assert_allclose(sums[:2], (loss, norm), rtol=1e-5)
        assert np.linalg.norm(sums[2] - moments) <= 1e-5 * np.linalg.norm(moments)
        assert int(sums[3]["rows"]) == 12 and sums[3]["none"] is None
        np.testing.assert_allclose(sums[3]["mean"], extra["mean"], rtol=1e-5)
        for joined, whole in zip(sums[3]["state"], extra["state"]):
            np.testing.assert_allclose(joined, whole, rtol=1e-5, atol=1e-6)


def test_rows_that_do_not_divide_are_refused():
    variable, update = small_update(accumulate=3)
    with pytest.raises(ConfigError, match=r"3 equal micro-batches.*\(4,"):
        update(lambda x: (tf.reduce_sum(variable) * tf.reduce_mean(x), None), tf.ones([4]))


def trainer(rows=8, window=8, **changes):
    """The tiny recipe on made-up bytes that follow one another, without shards."""
    config = recipe("tiny")
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, rows=rows, window=window), **changes)
    start = np.random.default_rng(0).integers(0, 64, (rows, 1))

    def batch(step, rows=slice(None)):
        ids = ((start[rows] + step * window + np.arange(window + 1)) % 64 + 32).astype(np.int32)
        return Batch(ids[:, :-1], ids[:, 1:], ids[:, :-1] == 32, np.ones((len(ids), window), np.float32))

    return Trainer(config, types.SimpleNamespace(batch=batch, steps_per_epoch=100))


# operations that leave the device; Assert isn't among them: XLA drops it
HOST = ("PyFunc", "EagerPyFunc", "PyFuncStateless", "NumpyFunction", "Print", "PrintV2")


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision, micro_rows, tolerance",
    [("float32", 0, 1e-5), ("float32", 4, 1e-5), ("mixed_bfloat16", 0, 1e-2), ("mixed_float16", 4, 2e-3)],
)
def test_the_whole_step_compiles(precision, micro_rows, tolerance):
    runs = []
    for compiled in (False, True):
        run = trainer(precision=precision, micro_rows=micro_rows)
        step = tf.function(run.update_on, jit_compile=compiled)
        state, losses = run.state, []
        for t in range(2):
            batch = [tf.constant(field) for field in dataclasses.astuple(run.stream.batch(t))]
            values, state = step(*batch, *state)
            losses.append(float(values["loss"]))
        assert int(run.update.optimizer.iterations) == 2
        runs.append(losses + [np.concatenate([v.numpy().ravel() for v in run.update.variables])])
    graph = step.get_concrete_function(*batch, *state).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    ops = {node.op for node in nodes}
    assert "ResourceApplyAdam" in ops  # it did look inside the functions
    assert not ops & set(HOST)
    for plain, compiled in zip(*runs):
        np.testing.assert_allclose(compiled, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_32k_rows_by_accumulation_learn():
    run = trainer(rows=32_768, window=4, micro_rows=2048, steps=100)
    assert run.update.accumulate == 16
    losses = [float(run.step(t)["loss"]) for t in range(4)]
    assert all(after < before for before, after in zip(losses, losses[1:]))
    assert int(run.update.optimizer.iterations) == 4


def test_a_float16_run_scales_its_loss_and_saves_the_scale():
    run = trainer(precision="mixed_float16")
    values = run.step(0)
    assert float(values["loss_scale"]) == 2.0**15 and int(values["skipped"]) == 0
    assert "loss_scale" in run.objects() and "loss_scale" not in trainer().objects()
