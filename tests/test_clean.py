"""The text policy: every kind of input has one defined, finite result."""

from __future__ import annotations

import html
import lzma
import re
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError, TextError
from lbzoo.text.clean import POLICIES, as_texts, encode

SURROGATE = r"[\ud800-\udfff]"
ANY_TEXT = st.text(st.characters(exclude_categories=()))
TEXT_WITH_ENTITIES = st.lists(
    st.one_of(
        st.sampled_from(
            ["&amp;", "&lt;", "&#233;", "&#xD83D;", "&#128;", "&", "&notit;", "\n", "\r", "\t", "\x00", "\xa0"]
        ),
        st.text(max_size=5),
    )
).map("".join)


def openai_preprocess(text: str) -> bytes:
    """`utils.preprocess` of openai/generating-reviews-discovering-sentiment, line by line."""
    text = html.unescape(text)
    text = text.replace("\n", " ").strip()
    return ("\n " + text + " ").encode()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", b"\n  "),
        (" \t\n\u3000 ", b"\n  "),
        ("good", b"\n good "),
        ("  a \n b\r\tc ", b"\n a   b\r\tc "),
        ("a\x00b", b"\n a\x00b "),
        ("\x00", b"\n \x00 "),
        ("caf\xe9 \U0001f600", "\n caf\xe9 \U0001f600 ".encode()),
        ("a &lt;b&gt; &amp;amp;", b"\n a <b> &amp; "),
        ("&#10;x", b"\n x "),
        ("a<br />b", b"\n a<br />b "),
        ("wait\x85 it\x92s", b"\n wait\xc2\x85 it\xc2\x92s "),
        ("a\ud800b", b"\n a\xef\xbf\xbdb "),
        ("\udc80\udc80", b"\n \xef\xbf\xbd\xef\xbf\xbd "),
        ("\ud83d\ude00\ud83d", b"\n \xf0\x9f\x98\x80\xef\xbf\xbd "),
        (np.str_("good"), b"\n good "),
        (b"", b""),
        (b" raw \xff\x00\n ", b" raw \xff\x00\n "),
        (np.bytes_(b"x "), b"x "),
    ],
)
def test_each_input_has_one_result(text, expected):
    result = encode(text)
    assert result == expected
    assert type(result) is bytes


@given(st.one_of(st.text(), TEXT_WITH_ENTITIES))
def test_default_is_openais_preprocessing(text):
    assert encode(text) == openai_preprocess(text)


@given(ANY_TEXT)
def test_surrogates_in_pairs_are_characters_and_alone_are_faults(text):
    pairs = re.sub(r"[\ud800-\udbff][\udc00-\udfff]", lambda pair: _joined(*pair[0]), text)
    mended = re.sub(SURROGATE, "\ufffd", pairs)
    assert encode(text) == openai_preprocess(mended)


def _joined(high: str, low: str) -> str:
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + ord(low) - 0xDC00)


@given(ANY_TEXT, st.sampled_from(sorted(POLICIES)))
def test_a_str_always_gives_padded_utf8(text, policy):
    result = encode(text, policy)
    assert result.startswith(b"\n ") and result.endswith(b" ") and len(result) >= 3
    assert b"\n" not in result[1:]
    result.decode("utf-8")


@given(st.binary(), st.sampled_from(sorted(POLICIES)))
def test_bytes_pass_as_they_are(data, policy):
    assert encode(data, policy) == data


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<&")))
def test_policies_agree_where_there_is_nothing_to_mend(text):
    assert encode(text, "reviews") == encode(text, "openai")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a<br />b<BR>c</br>d<br/ >e", "a b c d e"),
        ("<p>one</p><hr>two", "one  two"),
        ("<i>very</i> <b class='x y' id=z>good</b>", "very   good"),
        ('see <a href="http://example.com/?a=1">this</a>', "see  this"),
        ("a &lt;br /&gt; b &lt;I&gt;c", "a   b  c"),
        ("I <3 this > that", "I <3 this > that"),
        ("a < b > c", "a < b > c"),
        ("<sigh> <i think so> <brr> <br", "<sigh> <i think so> <brr> <br"),
        ("it\x92s \x93fine\x94\x85 \x80 5", "it\u2019s \u201cfine\u201d\u2026 \u20ac 5"),
        ("\x81\x8d\x8f\x90\x9d!", "\x81\x8d\x8f\x90\x9d!"),
        ("end\x85", "end\u2026"),
        ("caf\xe9 \xa0 x", "caf\xe9 \xa0 x"),
    ],
)
def test_reviews_policy(text, expected):
    assert encode(text, "reviews") == f"\n {expected} ".encode()


def test_a_character_reference_of_thousands_of_digits():
    assert encode("&#" + "9" * 9000 + "; ok") == "\n \ufffd ok ".encode()
    assert encode("&#" + "0" * 9000 + "65;&#66 &amp;") == b"\n AB & "


@pytest.mark.parametrize(
    "piece",
    ["<br ", "<br" + " " * 99, "<a x=/", "<a" + " x=y" * 99, "&", "&lt;br ", "<p x='", "&#", "\ud800", "a\x85", "\n"],
)
def test_a_megabyte_of_anything_is_quick(piece):
    text = piece * (1_000_000 // len(piece))
    start = time.perf_counter()
    for policy in POLICIES:
        assert len(encode(text, policy)) >= 3
    assert time.perf_counter() - start < 10


def test_a_long_text_is_whole():
    assert encode("ab" * 500_000) == b"\n " + b"ab" * 500_000 + b" "


def test_unknown_policy_is_named():
    with pytest.raises(ConfigError, match=r"Received: 'opnai'. Known: openai, reviews"):
        encode("x", "opnai")
    with pytest.raises(ConfigError):
        encode("x", ["openai"])


@pytest.mark.parametrize("text", [None, 3, 2.5, float("nan"), ["x"], bytearray(b"x"), pd.NA])
def test_one_text_that_is_none(text):
    with pytest.raises(TextError, match="str or bytes. Received: "):
        encode(text)


@pytest.mark.parametrize(
    "bad", [None, 0, 1.5, float("nan"), np.nan, pd.NA, pd.NaT, True, ["x"], bytearray(b"x"), np.zeros((3, 3))]
)
@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_an_element_that_is_no_text_is_named_by_position(bad, kind):
    with pytest.raises(TextError, match="text 2 is not str or bytes. Received: "):
        list(as_texts(kind(["a", b"b", bad, "c"])))


@pytest.mark.parametrize("texts", ["bare", b"bare", np.str_("bare"), bytearray(b"bare"), memoryview(b"bare")])
def test_a_bare_text_is_not_a_list(texts):
    with pytest.raises(TextError, match=r"not one text.*\[text\]"):
        as_texts(texts)


@pytest.mark.parametrize("texts", [None, 3, float("nan"), {"a": 1}, {"a"}, object()])
def test_what_is_no_list_is_refused_at_once(texts):
    with pytest.raises(TextError, match="a list of texts is needed"):
        as_texts(texts)


@pytest.mark.parametrize("texts", [np.array("bare"), np.array([["a"]]), pd.DataFrame({"text": ["a"]})])
def test_dimensions(texts):
    with pytest.raises(TextError, match="one dimension. Received: .* of shape"):
        as_texts(texts)


def test_a_list_is_checked_before_work_begins():
    with pytest.raises(TextError, match="text 1 "):
        as_texts(["a", None])


def test_a_missing_cell_of_a_series():
    for series in (
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype="string"),
        pd.Series(["a", np.nan], dtype=object),
    ):
        with pytest.raises(TextError, match="text 1 .*Drop missing texts"):
            as_texts(series)


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "bc"],
        ("a", "bc"),
        np.array(["a", "bc"]),
        np.array(["a", "bc"], dtype=object),
        pd.Series(["a", "bc"], index=[7, 3]),
        pd.Series(["a", "bc"], dtype="string"),
        pd.Series(["a", "bc"], dtype="category"),
        pd.Index(["a", "bc"]),
        iter(["a", "bc"]),
        (text for text in ["a", "bc"]),
    ],
)
def test_every_kind_of_list(texts):
    assert [encode(text) for text in as_texts(texts)] == [b"\n a ", b"\n bc "]


def test_arrays_of_bytes_and_nothing():
    assert [encode(text) for text in as_texts(np.array([b"a", b"bc"]))] == [b"a", b"bc"]
    assert list(as_texts([])) == []
    assert list(as_texts(np.array([]))) == []


def test_real_reviews_lose_tags_and_controls(data_dir):
    with lzma.open(data_dir / "imdb" / "test.tsv.xz", "rt", encoding="utf-8", newline="\n") as file:
        lines = [line for _, line in zip(range(3000), file)][1:]
    texts = [line.rstrip("\n").split("\t")[3] for line in lines]
    assert any("<br />" in text for text in texts) and any(re.search("[\x80-\x9f]", text) for text in texts)
    for text in texts:
        cleaned = encode(text, "reviews").decode()
        assert "<br" not in cleaned and not re.search("[\x80-\x9f]", cleaned)
        assert encode(text) == openai_preprocess(text)
