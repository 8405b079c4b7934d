"""Features of texts: what they are, that company does not change them, and that they are a scikit-learn transformer."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from lbzoo import checkpoint, states
from lbzoo.errors import ConfigError, TextError
from lbzoo.features import FeatureExtractor
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.states import PreparedModel
from lbzoo.text.bytes import pack
from lbzoo.text.clean import encode
from tests.conftest import seeded
from tests.mlstm_reference import run

TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}
UNITS = 24
TEXTS = [
    "loved it",
    "",
    "a\x00b",
    " \n ",
    b"bytes \xff too",
    "\ud800 lone",
    "x" * 61,  # with the padding 64 bytes; its neighbours 63 and 65
    "y" * 60,
    "z" * 62,
    "caf\xe9 \U0001f600 " * 40,
    "wait\x85<br />" * 60,
    b"1",
    "the plot is thin &amp; slow, the cast is not",
]


@pytest.fixture(scope="module")
def model():
    return seeded(MLSTMLanguageModel(MLSTMConfig(units=UNITS, embedding_dim=8), text="reviews"))


@pytest.fixture(scope="module")
def prepared(model):
    return PreparedModel(model)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return str(checkpoint.save(model, tmp_path_factory.mktemp("features") / "small"))


@pytest.fixture(scope="module")
def reference(model):
    """Of each of TEXTS, the states after every byte by the float64 reference: {state: [bytes, units]}."""
    weights = {name: value.numpy() for name, value in model.named_weights().items()}
    start = np.zeros((1, UNITS))
    runs = [run(weights, [list(encode(text, "reviews"))], start, start) for text in TEXTS]
    return [{"hidden": hidden[0], "cell": cells[0]} for _, hidden, cells, _ in runs]


@pytest.mark.parametrize("state, pool, tanh", [*itertools.product(states.STATES, states.POOLS, [False, True])])
def test_features_are_what_the_equations_say(model, reference, state, pool, tanh):
    features = FeatureExtractor(model, state=state, pool=pool, tanh=tanh).fit(TEXTS).transform(TEXTS)
    assert features.dtype == np.float32 and features.shape == (len(TEXTS), UNITS)
    values = [np.tanh(run[state]) if tanh else run[state] for run in reference]
    expected = [v[-1] if pool == "last" else v.mean(0) if pool == "mean" else v.max(0) for v in values]
    np.testing.assert_allclose(features, expected, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("pool", states.POOLS)
def test_company_does_not_change_features(model, pool):
    extractor = FeatureExtractor(model, pool=pool)
    alone = np.concatenate([extractor.transform([text]) for text in TEXTS])
    assert np.isfinite(alone).all()
    order = np.random.default_rng(0).permutation(len(TEXTS))
    np.testing.assert_allclose(extractor.transform(TEXTS), alone, **TOLERANCE)
    np.testing.assert_allclose(extractor.transform([TEXTS[i] for i in order]), alone[order], **TOLERANCE)
    np.testing.assert_allclose(extractor.transform(TEXTS * 7), np.tile(alone, (7, 1)), **TOLERANCE)
    for batch_size in (1, 2, 5):
        features = FeatureExtractor(model, pool=pool, batch_size=batch_size).transform(TEXTS)
        np.testing.assert_allclose(features, alone, **TOLERANCE)
    for window in (1, 3):
        features = np.concatenate(list(extractor.iter_transform(TEXTS, window=window)))
        np.testing.assert_allclose(features, alone, **TOLERANCE)


@pytest.mark.parametrize("pool", states.POOLS)
def test_any_chunk_size(prepared, pool):
    reader = prepared.reader(pool=pool)
    rows = [encode(text, "reviews") for text in TEXTS]
    whole = reader.read(rows)
    for chunk_size in (1, 7, 63, 64, 65, 4096):
        np.testing.assert_allclose(reader.read(rows, chunk_size=chunk_size), whole, **TOLERANCE)


@pytest.mark.parametrize("pool", states.POOLS)
def test_padding_on_either_side(prepared, pool):
    reader = prepared.reader(pool=pool)
    rows = [encode(text, "reviews") for text in TEXTS]
    whole = reader.read(rows)
    lengths = np.array([len(row) for row in rows])
    right = pack(rows).cut(len(rows), 0, lengths.max())
    left = [np.stack([np.roll(row, lengths.max() - n) for row, n in zip(part, lengths)]) for part in right]
    for padded in (right, left):
        carried = reader.step(*padded, *reader.start(len(rows)))
        np.testing.assert_allclose(reader.finish(carried, lengths), whole, **TOLERANCE)


@settings(max_examples=15)
@given(
    st.lists(
        st.one_of(st.text(st.characters(exclude_categories=()), max_size=150), st.binary(max_size=150)), max_size=9
    ),
    st.data(),
)
def test_whatever_the_texts_company_and_order_change_nothing(prepared, texts, data):
    pool = data.draw(st.sampled_from(states.POOLS))
    extractor = FeatureExtractor(prepared.model, state="hidden", pool=pool)
    extractor._own = (prepared.model, "float32", prepared)  # keeps the compiled functions between examples
    together = extractor.transform(texts)
    assert np.isfinite(together).all() and together.shape == (len(texts), UNITS)
    order = data.draw(st.permutations(range(len(texts))))
    shuffled = extractor.transform([texts[i] for i in order])
    np.testing.assert_allclose(shuffled, together[list(order)], **TOLERANCE)
    for text, row in zip(texts, together):
        np.testing.assert_allclose(extractor.transform([text])[0], row, **TOLERANCE)


def test_a_text_without_a_byte_is_zeros_and_none_are_none(model):
    for pool in states.POOLS:
        extractor = FeatureExtractor(model, pool=pool)
        assert not extractor.transform([b"", b""]).any()
        assert extractor.transform([b"", "x"])[1].any()
        for nothing in ([], iter([]), np.array([]), pd.Series([], dtype=object)):
            features = extractor.transform(nothing)
            assert features.shape == (0, UNITS) and features.dtype == np.float32
    assert list(extractor.iter_transform([])) == []


def test_a_long_text_among_short_ones(model):
    extractor = FeatureExtractor(model, pool="mean")
    long = "so good " * 4_000
    together = extractor.transform(["short", long, "other"])
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together[[0, 2]], extractor.transform(["short", "other"]), **TOLERANCE)
    ending = extractor.transform(["so good " * 2_000])  # the mean over a long, even text is settled
    np.testing.assert_allclose(together[1], ending[0], atol=1e-3)


def test_one_trace_serves_every_shape(model):
    rng = np.random.default_rng(0)
    for pool in states.POOLS:
        extractor = FeatureExtractor(model, pool=pool)
        for _ in range(40):
            extractor.transform(["x" * int(n) for n in rng.integers(0, 400, rng.integers(1, 40))])
            clone(extractor).transform(["a clone compiles nothing"])
        assert extractor._reader().step.experimental_get_tracing_count() == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the memory of the process from Linux' /proc")
def test_memory_is_flat_over_hundreds_of_calls(model):
    extractor = FeatureExtractor(model)
    rng = np.random.default_rng(0)

    def call(times):
        for _ in range(times):
            extractor.transform(["x" * int(n) for n in rng.integers(0, 300, rng.integers(1, 30))])
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    before = call(100)
    assert call(200) - before < 8


def test_a_stream_is_read_a_window_at_a_time(model):
    taken = []

    def source():
        for i in itertools.count():
            taken.append(i)
            yield f"text {i}"

    stream = FeatureExtractor(model, batch_size=4).iter_transform(source(), window=10)
    first = next(stream)
    assert first.shape == (10, UNITS) and len(taken) == 10
    second = next(stream)
    assert len(taken) == 20
    expected = FeatureExtractor(model).transform([f"text {i}" for i in range(20)])
    np.testing.assert_allclose(np.concatenate([first, second]), expected, **TOLERANCE)


@pytest.mark.parametrize(
    "texts",
    [
        ("a", "bc"),
        np.array(["a", "bc"]),
        np.array(["a", "bc"], dtype=object),
        pd.Series(["a", "bc"], index=[7, 3]),
        pd.Series(["a", "bc"], dtype="string"),
        iter(["a", "bc"]),
    ],
)
def test_every_kind_of_list(model, texts):
    extractor = FeatureExtractor(model)
    np.testing.assert_allclose(extractor.fit_transform(texts), extractor.transform(["a", "bc"]), **TOLERANCE)


@pytest.mark.parametrize("texts", ["bare", b"bare", None, 3, np.array("bare"), pd.DataFrame({"text": ["a"]}), {"a": 1}])
def test_what_is_no_list_of_texts(model, texts):
    with pytest.raises(TextError, match="Received: "):
        FeatureExtractor(model).transform(texts)


def test_a_missing_text_is_named(model):
    extractor = FeatureExtractor(model)
    for texts in (["a", None], iter(["a", float("nan")]), pd.Series(["a", None]), np.array(["a", 3], dtype=object)):
        with pytest.raises(TextError, match="text 1 "):
            extractor.transform(texts)


@pytest.mark.parametrize(
    "option",
    [
        {"state": "h"},
        {"pool": "first"},
        {"pool": 1},
        {"tanh": "yes"},
        {"batch_size": 0},
        {"batch_size": 2.0},
        {"batch_size": True},
        {"dtype": "float64"},
    ],
)
def test_options_are_stored_untouched_and_checked_at_use(option):
    extractor = FeatureExtractor("nothing is loaded", **option)
    name, value = next(iter(option.items()))
    assert extractor.get_params()[name] is value
    for use in (extractor.fit, extractor.transform, extractor.get_feature_names_out):
        with pytest.raises(ConfigError, match=f"{name} .*Received: {name}="):
            use(["x"])


def test_other_objects_and_small_vocabularies_are_refused(model):
    for other in (None, 3, model.mlstm, MLSTMLanguageModel):
        with pytest.raises(ConfigError, match="name of a checkpoint, its folder or a model of lbzoo"):
            FeatureExtractor(other).transform(["x"])
    few = MLSTMLanguageModel(MLSTMConfig(units=4, vocab_size=100))
    with pytest.raises(ConfigError, match="vocabulary of 256 or more. Received: vocab_size=100"):
        FeatureExtractor(few).transform(["x"])
    with pytest.raises(ConfigError, match="window must be a positive integer"):
        FeatureExtractor(model).iter_transform(["x"], window=0)


def test_weights_are_copied_only_where_they_must_be(model):
    folded = model.folded()
    assert PreparedModel(folded).model is folded
    assert PreparedModel(model).model is not model
    FeatureExtractor(model).transform(["x"])
    assert model.config.weight_norm


def test_bfloat16_gives_float32_close_to_float32(model):
    exact = FeatureExtractor(model).transform(TEXTS)
    rough = FeatureExtractor(model, dtype="bfloat16").transform(TEXTS)
    assert rough.dtype == np.float32 and np.isfinite(rough).all()
    assert 0 < np.abs(rough - exact).mean() < 0.02


def test_a_mixed_model_reads_in_the_dtype_that_is_asked_for(model):
    mixed = MLSTMLanguageModel(model.config, model.text, seed=None, dtype="mixed_bfloat16")
    for name, variable in mixed.named_weights().items():
        variable.assign(model.named_weights()[name])
    np.testing.assert_allclose(
        FeatureExtractor(mixed).transform(TEXTS), FeatureExtractor(model).transform(TEXTS), **TOLERANCE
    )


def test_by_name_loads_once_and_again_when_the_folder_changes(folder, model, tmp_path, monkeypatch):
    own = str(shutil.copytree(folder, tmp_path / "own"))
    loaded = []
    load = states.load_with_folder
    monkeypatch.setattr(states, "load_with_folder", lambda name: loaded.append(name) or load(name))
    extractor = FeatureExtractor(own)
    features = extractor.transform(["x"])
    clone(extractor).transform(["y"])
    FeatureExtractor(Path(own), pool="mean").transform(["y"])
    assert len(loaded) == 1
    np.testing.assert_allclose(features, FeatureExtractor(model).transform(["x"]), atol=1e-6)
    other = seeded(MLSTMLanguageModel(model.config, model.text), seed=1)
    checkpoint.save(other, own)
    assert np.abs(FeatureExtractor(own).transform(["x"]) - features).max() > 1e-3
    assert len(loaded) == 2
    assert len(states._prepared) <= 2


def test_clone_shares_the_model_and_keeps_the_rest(model):
    extractor = FeatureExtractor(model, pool="max", batch_size=3).set_output(transform="pandas")
    other = clone(extractor)
    assert other is not extractor and other.model is model
    assert other.get_params(deep=False) == extractor.get_params(deep=False)
    assert isinstance(other.transform(["x"]), pd.DataFrame)
    other.set_params(pool="last").set_output(transform="default")
    assert isinstance(extractor.transform(["x"]), pd.DataFrame) and extractor.pool == "max"
    assert "FeatureExtractor" in repr(extractor)


def test_pandas_output_is_named_and_keeps_the_index(model):
    extractor = FeatureExtractor(model, state="hidden").set_output(transform="pandas")
    frame = extractor.transform(["a", "bc"])
    assert list(frame.columns) == list(extractor.get_feature_names_out()) == [f"hidden_{i}" for i in range(UNITS)]
    np.testing.assert_array_equal(frame.to_numpy(), FeatureExtractor(model, state="hidden").transform(["a", "bc"]))
    framed = extractor.transform(pd.Series(["a", "bc"], index=[7, 3]))
    pd.testing.assert_frame_equal(framed, frame.set_axis([7, 3]))
    with sklearn.config_context(transform_output="pandas"):
        assert list(FeatureExtractor(model).transform(pd.Series(["a"], index=[7])).index) == [7]


def test_in_a_pipeline_and_in_a_column_transformer(model):
    texts, labels = ["good", "bad", "fine", "poor"] * 3, [1, 0, 1, 0] * 3
    pipeline = make_pipeline(FeatureExtractor(model), LogisticRegression(C=100)).fit(texts, labels)
    assert pipeline.score(texts, labels) == 1.0
    frame = pd.DataFrame({"text": texts, "stars": range(12)})
    columns = ColumnTransformer([("text", FeatureExtractor(model), "text"), ("rest", "passthrough", ["stars"])])
    features = columns.fit_transform(frame)
    assert features.shape == (12, UNITS + 1)
    np.testing.assert_allclose(features[:, :UNITS], FeatureExtractor(model).transform(texts), **TOLERANCE)
    assert columns.get_feature_names_out()[0] == "text__cell_0"


def test_tags(model):
    extractor = FeatureExtractor(model)
    if hasattr(sklearn.utils, "get_tags"):
        tags = sklearn.utils.get_tags(extractor)
        assert tags.input_tags.string and not tags.input_tags.two_d_array and not tags.requires_fit
    else:
        from sklearn.utils._tags import _safe_tags

        assert _safe_tags(extractor, "X_types") == ["string"] and not _safe_tags(extractor, "requires_fit")


def test_joblib_round_trip_by_name_holds_no_weights(folder, tmp_path):
    pipeline = Pipeline([("features", FeatureExtractor(folder)), ("probe", LogisticRegression(C=10))])
    texts, labels = ["good", "bad", "fine", "poor"], [1, 0, 1, 0]
    pipeline.fit(texts, labels)
    assert len(pickle.dumps(pipeline.named_steps["features"])) < 1000
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    other = joblib.load(tmp_path / "pipeline.joblib")
    np.testing.assert_array_equal(other.predict_proba(texts), pipeline.predict_proba(texts))


def test_a_model_object_travels_inside_a_pickle(model):
    extractor = FeatureExtractor(model, pool="mean")
    features = extractor.transform(TEXTS)
    buffer = io.BytesIO()
    joblib.dump(extractor, buffer)
    buffer.seek(0)
    other = joblib.load(buffer)
    assert other.model is not model and other.model.config == model.config and other.model.text == "reviews"
    np.testing.assert_array_equal(other.transform(TEXTS), features)
    assert extractor.model is model


@pytest.mark.slow
def test_grid_search_in_two_processes(folder):
    pipeline = Pipeline([("features", FeatureExtractor(folder)), ("probe", LogisticRegression())])
    texts, labels = ["good", "bad", "fine", "poor", "nice", "dull"] * 2, [1, 0, 1, 0, 1, 0] * 2
    grid = {"features__pool": ["last", "mean"], "probe__C": [1, 100]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise").fit(texts, labels)
    assert search.best_score_ == 1.0
    assert search.predict(["good", "bad"]).tolist() == [1, 0]


def test_reading_texts_needs_no_scikit_learn():
    code = "import sys, lbzoo.states; print([m for m in ('sklearn', 'tensorflow', 'keras') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
