"""Texts and pairs of texts, told apart by their form, and what each architecture reads of a pair."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lbzoo
from lbzoo.errors import ConfigError, TextError
from lbzoo.text.clean import encode
from lbzoo.text.pairs import TextPair, as_inputs, encode_input
from tests.order_bert import small_bert

PAIRS = [("a", "b"), ("c", ""), (b"\xff", "d")]


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        iter,
        lambda pairs: [list(pair) for pair in pairs],
        lambda pairs: [np.array(pair, object) for pair in pairs],
        lambda pairs: [TextPair(*pair) for pair in pairs],
        lambda pairs: np.array(pairs, object),
        pd.DataFrame,
        lambda pairs: pd.DataFrame(pairs, index=[7, 7, 9], columns=["x", "x"]),
        lambda pairs: pd.Series(pairs, index=[5, 3, 1]),
    ],
    ids=["list", "tuple", "iterator", "lists", "arrays", "TextPair", "array", "frame", "odd frame", "series"],
)
def test_forms_of_pairs(form):
    assert list(as_inputs(form(PAIRS))) == [TextPair(*pair) for pair in PAIRS]
    assert list(as_inputs(form(PAIRS), pairs=True)) == [TextPair(*pair) for pair in PAIRS]
    with pytest.raises(TextError, match="single texts are needed. Received: pairs"):
        as_inputs(form(PAIRS), pairs=False)


def test_an_array_of_strings():
    assert list(as_inputs(np.array([["a", "b"], ["c", "d"]]))) == [TextPair("a", "b"), TextPair("c", "d")]


@given(st.lists(st.text(max_size=5) | st.binary(max_size=5)))
def test_single_texts_stay_what_they_are(texts):
    assert list(as_inputs(texts)) == list(as_inputs(iter(texts), pairs=False)) == texts
    if texts:
        with pytest.raises(TextError, match="pairs of texts are needed"):
            as_inputs(texts, pairs=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([("a", "b"), "c"], "pair 1 must be two texts.* Received: str 'c'"),
        ([("a", "b"), ("c", None)], "pair 1 must be two texts"),
        ([("a", "b"), ("c",)], "pair 1 must be two texts"),
        ([("a", "b", "c")], "pair 0 must be two texts"),
        ([("a", 1)], "pair 0 must be two texts"),
        (["a", ("b", "c")], "text 1 is not str or bytes"),
        (pd.DataFrame({"a": ["x"], "b": [np.nan]}), "pair 0 must be two texts"),
        (np.zeros((2, 2)), "pair 0 must be two texts"),
        (np.array([["a", "b", "c"]]), "one dimension"),
        (np.array("a"), "one dimension"),
        ("ab", "list of texts"),
        ({"a": "b"}, "list of texts"),
        (None, "list of texts"),
        (3, "list of texts"),
    ],
)
def test_what_is_neither(wrong, message):
    with pytest.raises(TextError, match=message):
        list(as_inputs(wrong))


def test_a_model_of_bytes_reads_one_text_after_the_other(tiny_model):
    assert encode_input(TextPair("a &amp; b", b"\xff"), "reviews") == b"\n a & b \xff"
    assert encode_input("a", "openai") == encode("a", "openai")
    joined = encode("a", tiny_model.text) + encode("b", tiny_model.text)
    found = lbzoo.FeatureExtractor(tiny_model).transform([("a", "b"), ("", "")])
    np.testing.assert_allclose(found[0], lbzoo.FeatureExtractor(tiny_model).transform([joined])[0], atol=1e-6)
    assert np.isfinite(found).all()


def test_a_bert_reads_a_pair_with_a_segment_for_each():
    model = small_bert()
    extractor = lbzoo.FeatureExtractor(model, pool="cls")
    found = extractor.transform(pd.DataFrame({"first": ["good film", "the"], "second": ["bad", ""]}))
    ids = np.array([[2, 5, 8, 3, 6, 3]])
    hidden = model.with_head(None)(ids, np.array([[0, 0, 0, 0, 1, 1]])).hidden
    np.testing.assert_allclose(found[0], hidden[0, 0], atol=1e-5)
    np.testing.assert_allclose(extractor.transform([("the", "")])[0], found[1], atol=1e-5)


def test_a_bert_of_one_segment_refuses_pairs():
    import dataclasses

    from lbzoo.models.bert import BertEncoder

    model = small_bert(head=None)
    single = BertEncoder(dataclasses.replace(model.config, type_vocab_size=1), vocabulary=model.vocabulary)
    with pytest.raises(ConfigError, match="tells two segments apart. Received: type_vocab_size=1"):
        lbzoo.FeatureExtractor(single).transform([("a", "b")])
