"""LAMB, LARS and AdamW against their papers in float64 (`optimizer_reference.py`), and what all three must hold."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lbzoo._keras import addons_optimizer
from lbzoo.errors import ConfigError, MissingPartError
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.optimizers.adamw import adamw
from lbzoo.optimizers.lamb import PRESETS, lamb
from lbzoo.optimizers.lars import LARS
from lbzoo.optimizers.loss_scale import LossScaleConfig
from lbzoo.optimizers.trust_ratio import trust_ratio
from lbzoo.optimizers.update import Update
from tests import optimizer_reference as reference
from tests.conftest import seeded

NORMS_AND_BIASES = ("attention.bias", "norm.scale")
EXCLUDED = {"paper": ((), ()), "tf-models": (NORMS_AND_BIASES,) * 2, "nvidia": (NORMS_AND_BIASES, ())}
STEPS = len(reference.RATES)


def variables():
    """Weights whose TensorFlow names say nothing."""
    return {name: tf.Variable(w, name="weight") for name, w in reference.start().items()}


def train(make, steps=STEPS, jit=False):
    """`make(names)` on the made-up gradients through `Update`; (weights by name, the optimizer)."""
    names = variables()
    update = Update(list(names.values()), make(names), lambda step: tf.gather(reference.RATES, step), clip_norm=0.0)

    def loss(*gradients):  # linear, so that these are its gradients
        return tf.add_n([tf.reduce_sum(w * g) for w, g in zip(names.values(), gradients)]), None

    step = tf.function(lambda gradients: update(loss, *gradients)[0], jit_compile=jit)
    for t in range(1, steps + 1):
        step([tf.constant(g) for g in reference.gradients(t).values()])
    return names, update.optimizer


def assert_near(names, expected, tolerance=1e-6):
    for name, weight in names.items():
        assert np.abs(weight.numpy() - expected[name]).max() <= tolerance * max(1, np.abs(expected[name]).max()), name


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("decay", [0.0, 0.01, 0.1])
def test_lamb_is_the_papers(decay, preset):
    names, optimizer = train(lambda names: lamb(0.0, names, preset, decay))
    assert_near(names, reference.lamb(STEPS, decay, *EXCLUDED[preset])[0])
    assert optimizer.epsilon == 1e-6


@pytest.mark.parametrize("decay", [0.0, 0.01, 0.1])
def test_lars_is_the_papers(decay):
    names, _ = train(lambda names: LARS(0.0, names, weight_decay=decay))
    assert_near(names, reference.lars(STEPS, decay))
    names, _ = train(
        lambda names: LARS(
            0.0, names, weight_decay=decay, exclude_from_weight_decay=["bias$"], exclude_from_layer_adaptation=["^norm"]
        )
    )
    assert_near(names, reference.lars(STEPS, decay, ["attention.bias"], ["norm.scale"]))


@pytest.mark.parametrize("decay", [0.0, 0.01, 0.1])
def test_adamw_is_the_papers(decay):
    names, _ = train(lambda names: adamw(0.0, names, decay))
    assert_near(names, reference.adamw(STEPS, decay, NORMS_AND_BIASES))
    names, _ = train(lambda names: adamw(0.0, names, decay, exclude_from_weight_decay=[]))
    assert_near(names, reference.adamw(STEPS, decay))


MAKERS = {
    "lamb": (lambda names: lamb(0.1, names, "nvidia", 0.1), lambda n: reference.lamb(n, 0.1, NORMS_AND_BIASES)[0]),
    "lars": (lambda names: LARS(0.1, names, weight_decay=0.1), lambda n: reference.lars(n, 0.1)),
    "adamw": (lambda names: adamw(0.1, names, 0.1), lambda n: reference.adamw(n, 0.1, NORMS_AND_BIASES)),
}


@pytest.fixture(params=sorted(MAKERS))
def maker(request):
    """(make an optimizer, weights that its reference has after n steps)."""
    return MAKERS[request.param]


def test_it_compiles(maker):
    make, expected = maker
    names, _ = train(make, jit=True)
    assert_near(names, expected(STEPS))


def test_rows_that_a_gradient_names_twice_count_twice(maker):
    make, expected = maker
    names = variables()
    optimizer = make(names)
    for t in range(1, 4):
        grads = reference.gradients(t)
        numbers, values = reference.rows(t)
        grads[reference.SPARSE] = tf.IndexedSlices(tf.constant(values), tf.constant(numbers), names["words"].shape)
        optimizer.learning_rate.assign(reference.RATES[t - 1])
        optimizer.apply_gradients((grads[name], weight) for name, weight in names.items())
    if isinstance(optimizer, addons_optimizer("AdamW")):  # Adam's sparse step decays only the rows it is given
        names.pop("words")
    assert_near(names, expected(3))


def test_a_restored_checkpoint_goes_on_bit_by_bit(maker, tmp_path):
    make, _ = maker

    def fresh():
        names = variables()
        update = Update(list(names.values()), make(names), lambda step: 0.1 / (1.0 + tf.cast(step, tf.float32)), 1.0)
        return names, update, tf.train.Checkpoint(weights=names, **update.state())

    def do(names, update, steps):
        for t in steps:
            grads = reference.gradients(t)
            update(lambda grads=grads: (tf.add_n([tf.reduce_sum(w * grads[k]) for k, w in names.items()]), None))

    names, update, checkpoint = fresh()
    do(names, update, range(1, 4))
    path = checkpoint.write(str(tmp_path / "state"))
    do(names, update, range(4, 7))
    again, resumed, checkpoint = fresh()
    do(again, resumed, range(9, 10))  # what is restored replaces it
    checkpoint.read(path).assert_consumed()
    do(again, resumed, range(4, 7))
    for one, other in zip(update.optimizer.variables(), resumed.optimizer.variables()):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for name in names:
        np.testing.assert_array_equal(names[name].numpy(), again[name].numpy())


def test_a_gradient_of_zeros_leaves_finite_weights(maker):
    make, _ = maker
    names = variables()
    optimizer = make(names)
    for _ in range(2):
        optimizer.apply_gradients((tf.zeros_like(weight), weight) for weight in names.values())
    assert all(np.isfinite(weight.numpy()).all() for weight in names.values())
    np.testing.assert_array_equal(names["zero"].numpy(), 0.0)


def test_the_ratio_is_what_tensorflow_addons_computes_inside():
    """The step that its own class takes, over the rate and the direction, is its ratio."""
    names = variables()
    rate, decay = 0.5, 0.1
    plain = addons_optimizer("LAMB")(rate, weight_decay=decay)
    for t in range(1, 4):
        before = {name: weight.numpy() for name, weight in names.items()}
        plain.apply_gradients((tf.constant(g), names[name]) for name, g in reference.gradients(t).items())
        for name, weight in names.items():
            m, v = (plain.get_slot(weight, slot).numpy().astype(np.float64) for slot in "mv")
            update = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + decay * before[name]
            inside = np.vdot(before[name] - weight.numpy(), update) / np.vdot(update, update) / rate
            np.testing.assert_allclose(trust_ratio(before[name], update), inside, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "weight, update, options, ratio",
    [
        ([3.0, 4.0], [0.0, 2.0], {}, 2.5),
        ([0.0, 0.0], [0.0, 2.0], {}, 1.0),
        ([3.0, 4.0], [0.0, 0.0], {}, 1.0),
        ([3.0, 4.0], [0.0, 2.0], {"clamp": (0.0, 4.0)}, 2.0),
        ([3.0, 4.0], [0.0, 2.0], {"clamp": (10.0, 20.0)}, 5.0),
        ([3.0, 4.0], [0.0, 2.0], {"decay": 0.1, "coefficient": 0.001}, 0.002),
        ([0.0, 0.0], [0.0, 2.0], {"decay": 0.1, "coefficient": 0.001}, 1.0),
        ([3e4, 4e4], [0.0, 2.0], {}, 25000.0),  # as float16 too, whose largest number is 65504
    ],
)
def test_the_ratio_by_hand(weight, update, options, ratio):
    for dtype in (tf.float32, tf.float16):
        found = trust_ratio(tf.constant(weight, dtype), tf.constant(update, dtype), **options)
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, ratio, rtol=1e-3 if dtype == tf.float16 else 1e-6)


def test_the_log_has_the_ratio_of_every_adapted_weight():
    rates = list(reference.RATES)
    rates[STEPS - 1] = 0.0  # after a last step of no length, the weights are those that the ratio was taken of
    names = variables()
    optimizer = lamb(0.1, names, "tf-models", 0.1)
    for t, rate in enumerate(rates, start=1):
        optimizer.learning_rate.assign(rate)
        optimizer.apply_gradients((tf.constant(g), names[name]) for name, g in reference.gradients(t).items())
    logged = optimizer.trust_ratios()
    expected = reference.lamb(STEPS, 0.1, *EXCLUDED["tf-models"])[1][-1]
    assert set(logged) == set(names) - set(NORMS_AND_BIASES)
    for name, ratio in logged.items():
        np.testing.assert_allclose(ratio, expected[name], rtol=1e-5)


@pytest.mark.parametrize(
    "preset, lists, excluded",
    [
        ("tf-models", {}, EXCLUDED["tf-models"]),
        ("tf-models", {"exclude_from_layer_adaptation": []}, EXCLUDED["nvidia"]),
        ("tf-models", {"exclude_from_weight_decay": []}, ((), NORMS_AND_BIASES)),
        ("paper", {"exclude_from_weight_decay": ["^words$"]}, (["words"], ())),
        ("paper", {"exclude_from_layer_adaptation": ["^words$"]}, ((), ["words"])),
        ("nvidia", {"exclude_from_weight_decay": [], "exclude_from_layer_adaptation": ["weight"]}, ((), ())),
    ],
)
def test_the_two_lists_are_two_and_an_empty_one_excludes_nothing(preset, lists, excluded):
    names = variables()
    optimizer = lamb(0.1, names, preset, **lists)
    undecayed = {name for name, weight in names.items() if not optimizer._do_use_weight_decay(weight)}
    unadapted = {name for name, weight in names.items() if not optimizer._do_layer_adaptation(weight)}
    assert (undecayed, unadapted) == tuple(map(set, excluded))


def test_the_presets_know_the_names_of_an_mlstm(tiny_model):
    names = tiny_model.named_weights()
    optimizer = lamb(0.1, names, "nvidia")
    undecayed = {name for name, weight in names.items() if not optimizer._do_use_weight_decay(weight)}
    assert undecayed == {"b", "out_b", "gx", "gh", "gmx", "gmh"}


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_it_trains_what_computes_in_half_precision(maker, policy, tiny_model):
    make, _ = maker
    ids = tf.constant(np.random.default_rng(0).integers(0, 256, (4, 9)), tf.int32)

    def losses(policy):
        model = seeded(MLSTMLanguageModel(tiny_model.config, dtype=policy))
        names = model.named_weights()
        scale = LossScaleConfig() if policy == "mixed_float16" else None
        update = Update(list(names.values()), make(names), lambda step: tf.constant(0.02), 1.0, loss_scale=scale)

        def loss():
            logits, _ = model(ids[:, :-1])
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], logits)), None

        step = tf.function(lambda: update(loss)[0])
        found = [float(step()) for _ in range(8)]
        assert {v.dtype for v in (*names.values(), *update.optimizer.variables())} == {tf.float32, tf.int64}
        assert int(update.skipped) == 0
        return found

    half = losses(policy)
    assert half[-1] < half[0]
    np.testing.assert_allclose(half, losses("float32"), rtol=1e-2)


@pytest.fixture(scope="module")
def replicas(root):
    command = [sys.executable, "-m", "tests.mirrored_optimizers"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_two_replicas_equal_one(replicas, name):
    (one, ratios), (two, ratios_of_two) = replicas[name]["one"], replicas[name]["two"]
    for weight in reference.SHAPES:
        np.testing.assert_allclose(two[weight], one[weight] * 2, rtol=1e-5, atol=1e-6)
        assert two[weight][0] == two[weight][1]
        assert np.abs(np.subtract(one[weight][0], reference.start()[weight])).max() > 1e-5  # it moved
    assert ratios.keys() == ratios_of_two.keys() and bool(ratios) == (name == "lamb")
    for weight, ratio in ratios.items():
        np.testing.assert_allclose(ratios_of_two[weight], ratio, rtol=1e-4)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda names: lamb(0.1, names, "fused"), "no such LAMB.*'fused'.*nvidia"),
        (lambda names: lamb(0.1, names, epsilon=0.0), "epsilon > 0.*epsilon=0.0"),
        (lambda names: lamb(0.1, names, exclude_from_weight_decay="bias"), r"Write \['bias'\]"),
        (lambda names: lamb(0.1, names, exclude_from_weight_decay=["("]), "regular expressions.*'\\('"),
        (lambda names: LARS(0.1, names, momentum=1.0), "momentum=1.0"),
        (lambda names: adamw(0.1, names, -1.0), "weight_decay=-1.0"),
        (lambda names: Update([tf.Variable(1.0, name="other")], lamb(0.1, names), float, 1.0), "not of other"),
    ],
)
def test_what_makes_no_optimizer_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make(variables())


def test_without_tensorflow_addons_it_says_where_there_is_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_addons", None)
    with pytest.raises(MissingPartError, match="LAMB needs tensorflow-addons.*Linux with x86-64"):
        addons_optimizer("LAMB")
