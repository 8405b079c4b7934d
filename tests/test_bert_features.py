"""Features of a BERT: pools and layers, independence of company, what is cut, and what each architecture refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import lbzoo
from lbzoo.bert_states import PADDING, token_batches
from lbzoo.errors import ConfigError, TextError
from lbzoo.models.bert import BertEncoder, BertForPreTraining
from lbzoo.models.config import BertConfig
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from lbzoo.trace import trace
from tests import bert_reference as reference
from tests.conftest import seeded

WORDS = ["good", "bad", "film", "the", "a", "was", "##ly", ".", "!"]
CONFIG = BertConfig(
    vocab_size=len(SPECIAL) + len(WORDS),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=12,
    layer_norm_eps=1e-7,
)
VOCABULARY = Vocabulary([*SPECIAL, *WORDS])
TEXTS = ["The film was good.", "bad", "", "A goodly film! A badly film!", b"the film", "unknown words", "the " * 9]


@pytest.fixture(scope="module")
def model():
    return seeded(BertEncoder(CONFIG, vocabulary=VOCABULARY))


def ids_of(text):
    """By hand: these texts are words of the vocabulary, spaces and punctuation."""
    text = (text.decode() if isinstance(text, bytes) else text).lower()
    for mark in ".!":
        text = text.replace(mark, f" {mark} ")
    pieces = []
    for word in text.split():
        pieces += [word[:-2], "##ly"] if word.endswith("ly") else [word]
    return np.array([[2, *(VOCABULARY.ids.get(piece, 1) for piece in pieces), 3]])


POOLS = {
    "mean": lambda x, w: x.mean(0),
    "max": lambda x, w: x.max(0),
    "cls": lambda x, w: x[0],
    "pooled": lambda x, w: reference.pooled(w, x[None])[0],
}


@pytest.mark.parametrize(
    "pool, layer", [*((pool, -1) for pool in POOLS), ("mean", 0), ("max", 1), ("cls", -2), ("mean", 2)]
)
def test_equals_the_equations(model, pool, layer):
    w = {name: variable.numpy().astype(float) for name, variable in model.named_weights().items()}
    found = lbzoo.FeatureExtractor(model, pool=pool, layer=layer).transform(TEXTS)
    assert found.shape == (len(TEXTS), 16) and found.dtype == np.float32
    for text, row in zip(TEXTS, found):
        vectors = reference.encode(w, CONFIG, ids_of(text))[layer, 0]
        np.testing.assert_allclose(row, POOLS[pool](vectors, w), atol=2e-5)


def test_the_default_is_the_mean_of_the_last_layer(model):
    default, said = lbzoo.FeatureExtractor(model), lbzoo.FeatureExtractor(model, pool="mean", layer=2)
    np.testing.assert_array_equal(default.transform(TEXTS), said.transform(TEXTS))
    assert default.get_feature_names_out()[:2].tolist() == ["mean_0", "mean_1"]


@given(
    st.lists(st.lists(st.sampled_from(WORDS[:6]), max_size=10).map(" ".join), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_features_do_not_depend_on_company(texts, batch_size):
    if not _kept:  # compiled once
        _kept.append(lbzoo.FeatureExtractor(seeded(BertEncoder(CONFIG, vocabulary=VOCABULARY))))
    extractor = _kept[0].set_params(batch_size=batch_size)
    together, back = extractor.transform(texts), extractor.transform(texts[::-1])[::-1]
    np.testing.assert_allclose(together, back, atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(together[:1], extractor.transform(texts[:1]), atol=1e-5, rtol=1e-4)


_kept = []


def test_a_stream_is_read_window_by_window(model):
    extractor = lbzoo.FeatureExtractor(model)
    parts = list(extractor.iter_transform(iter(TEXTS * 3), window=4))
    assert [len(part) for part in parts] == [4, 4, 4, 4, 4, 1]
    np.testing.assert_allclose(np.concatenate(parts), extractor.transform(TEXTS * 3), atol=1e-5)
    assert extractor.transform([]).shape == (0, 16)


def test_what_is_too_long_is_cut_and_told(model):
    extractor = lbzoo.FeatureExtractor(model, pool="max")
    with pytest.warns(UserWarning, match=r"2 of 3 texts have more than the 12 tokens .* 95 word pieces"):
        long = extractor.transform(["bad " * 100, "good", "bad " * 15])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(long[0], extractor.transform(["bad " * 10])[0], atol=1e-5)


def test_bfloat16_is_close(model):
    exact, low = (lbzoo.FeatureExtractor(model, dtype=dtype).transform(TEXTS) for dtype in ("float32", "bfloat16"))
    cosine = (exact * low).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(low, axis=1)
    assert low.dtype == np.float32 and cosine.min() > 0.999 and np.abs(exact - low).max() > 0


def test_one_trace_serves_every_shape(model):
    reader = lbzoo.states.PreparedModel(model).reader()
    for texts in (["a"], TEXTS, TEXTS * 2, ["the film"] * 5):
        list(reader.iter_read(texts, 3))
    assert reader.step.experimental_get_tracing_count() == 1


def test_a_head_is_no_hindrance(model):
    pretrained = seeded(
        BertForPreTraining(BertConfig(**{**CONFIG.to_dict(), "head": "pretraining"}), vocabulary=VOCABULARY)
    )
    np.testing.assert_allclose(
        lbzoo.FeatureExtractor(pretrained, pool="pooled").transform(TEXTS),
        lbzoo.FeatureExtractor(pretrained.with_head(None), pool="pooled").transform(TEXTS),
        atol=1e-6,
    )


def test_from_a_folder_and_as_a_clone(model, tmp_path):
    folder = model.save_pretrained(tmp_path / "m")
    extractor = lbzoo.FeatureExtractor(str(folder), pool="cls", layer=1)
    copy = clone(extractor)
    assert copy.get_params()["layer"] == 1 and copy.get_params()["pool"] == "cls"
    np.testing.assert_array_equal(
        copy.transform(TEXTS), lbzoo.FeatureExtractor(model, pool="cls", layer=1).transform(TEXTS)
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pool": "last"}, "pool must be one of mean, max, cls, pooled for a model of kind bert"),
        ({"pool": "first"}, "pool must be one of"),
        ({"state": "hidden"}, "no choice of state"),
        ({"tanh": True}, "no choice of tanh"),
        ({"layer": 3}, "layer must be from -3 to 2"),
        ({"layer": -4}, "layer must be from -3 to 2"),
        ({"layer": 1.0}, "layer must be an integer"),
        ({"pool": "pooled", "layer": 1}, "needs a model with a pooler, and its last layer"),
    ],
)
def test_options_that_cannot_be_honoured(model, options, message):
    with pytest.raises(ConfigError, match=message):
        lbzoo.FeatureExtractor(model, **options).transform(["a"])


@pytest.mark.parametrize("options", [{"layer": 1}, {"pool": "cls"}, {"pool": "pooled"}])
def test_an_mlstm_refuses_the_options_of_a_bert(tiny_model, options):
    with pytest.raises(ConfigError, match="of kind mlstm"):
        lbzoo.FeatureExtractor(tiny_model, **options).transform(["a"])


def test_what_a_bert_cannot_read(model):
    with pytest.raises(ConfigError, match="without a vocabulary"):
        lbzoo.FeatureExtractor(BertEncoder(CONFIG)).transform(["a"])
    with pytest.raises(TextError, match="text 1 is not str or bytes"):
        lbzoo.FeatureExtractor(model).transform(["a", None])
    for options in ({"window": 0}, {"batch_size": 1.5}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} must be a positive integer"):
            lbzoo.states.PreparedModel(model).reader().iter_read(["a"], **options)
    with pytest.raises(ConfigError, match="only an mLSTM has a state after every byte"):
        trace("a", model)


def test_a_probe_on_its_features_is_saved_with_it(tmp_path):
    model = BertEncoder(CONFIG, vocabulary=VOCABULARY)
    model.named_weights()["embeddings/token"].assign(np.eye(*CONFIG.shapes()["embeddings/token"]))
    texts, labels = ["good film", "bad film", "a good", "a bad"] * 50, ["yes", "no"] * 100
    classifier = lbzoo.SentimentClassifier(model).fit(texts, labels)
    assert classifier.predict(texts[:4]).tolist() == labels[:4]
    again = lbzoo.SentimentClassifier(classifier.save(tmp_path / "m"))
    np.testing.assert_allclose(again.predict_proba(texts), classifier.predict_proba(texts), atol=1e-6)
    assert again._loaded().probe.pool == "mean"


@given(st.lists(st.integers(1, 512), max_size=60), st.integers(1, 16))
def test_batches_cover_every_row_once_and_hold_few_tokens_and_little_padding(lengths, batch_size):
    lengths = np.array(lengths, np.int64)
    parts = list(token_batches(lengths, batch_size, 600))
    assert sorted(np.concatenate([*parts, np.zeros(0, int)]).tolist()) == list(range(len(lengths)))
    for part in parts:
        assert len(part) <= batch_size and (len(part) == 1 or len(part) * lengths[part].max() <= 600)
        assert (lengths[part].max() - lengths[part]).sum() <= PADDING


def test_of_many_batches_each_text_gets_its_own_vector_and_an_error_in_one_is_raised(model, monkeypatch):
    reader = lbzoo.states.PreparedModel(model).reader()
    texts = [" ".join(WORDS[row % 6] for row in range(count)) for count in range(1, 10)]
    whole = np.concatenate(list(reader.iter_read(texts)))
    monkeypatch.setattr("lbzoo.bert_states.PADDING", 0)
    np.testing.assert_allclose(np.concatenate(list(reader.iter_read(texts, 1))), whole, atol=1e-5)
    step = reader.step
    reader.step = lambda ids, *rest: step(ids, *rest) if ids.shape[1] != 5 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        list(reader.iter_read(texts, 1))


def test_the_command_takes_pool_and_layer(model, tmp_path, run):
    folder = model.save_pretrained(tmp_path / "m")
    arguments = ("features", "The film.", "bad", "--model", folder, "--output", tmp_path / "f.npy")
    assert run(*arguments, "--pool", "cls", "--layer", 1)[0] == 0
    wanted = lbzoo.FeatureExtractor(model, pool="cls", layer=1).transform(["The film.", "bad"])
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), wanted, atol=1e-5)
    assert run(*arguments)[0] == 0  # the default of a BERT
    wanted = lbzoo.FeatureExtractor(model).transform(["The film.", "bad"])
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), wanted, atol=1e-5)
