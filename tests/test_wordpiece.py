"""WordPiece against Google's rules, character by character; offsets; odd vocabularies and inputs."""

import builtins
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import ConfigError, MissingPartError, TextError
from lbzoo.text.normalize import is_plain, normalize, normalize_aligned
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from lbzoo.text.wordpiece import WordPiece
from tests import wordpiece_reference
from tests.small_vocabulary import small_vocabulary

pytest.importorskip("tensorflow_text", reason="tensorflow-text has no wheel for this platform")
ROWS = small_vocabulary()
BY_CASE = {lowercase: WordPiece(ROWS, lowercase) for lowercase in (True, False)}
# stretches of text that meet one rule or another
STRETCHES = [
    *"ΣΟσ’'İßé中a b.-A!가#[]\u0301\u200b\x00\n\u2028\U0001f600\ue000\x85\ufffd\u00ad\xa0\u0327",
    *("good", "ing", "[MASK]", "x" * 100, "x" * 101, "é" * 60, "é" * 101, "Hello", "ﬁ", "\u3000", "\x01", "<br />"),
]
hard_text = st.lists(st.sampled_from(STRETCHES) | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join)


def pieces(tokenizer, text, **options):
    return [tokenizer.vocabulary.pieces[i] for i in tokenizer.tokenize([text], **options).ids]


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@given(st.lists(hard_text, max_size=5))
def test_pieces_are_those_of_googles_rules(lowercase, texts):
    tokenizer = BY_CASE[lowercase]
    found = tokenizer.tokenize(texts, offsets=True)
    assert np.array_equal(found.ids, tokenizer.tokenize(texts).ids)
    for text, begin, end in zip(texts, found.splits[:-1], found.splits[1:]):
        expected = wordpiece_reference.pieces(text, set(ROWS), lowercase)
        assert [ROWS[i] for i in found.ids[begin:end]] == expected


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@given(hard_text)
def test_a_piece_stands_where_its_offsets_say(lowercase, text):
    found = BY_CASE[lowercase].tokenize([text], offsets=True)
    assert (found.begins[1:] >= found.begins[:-1]).all() and (found.begins < found.ends).all()
    for i, begin, end in zip(found.ids, found.begins, found.ends):
        if ROWS[i] != "[UNK]":
            assert normalize(text[begin:end], lowercase).strip() in (ROWS[i].removeprefix("##"), "ς", "σ")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Café naïve", "cafe naive"),
        ("Cafe\u0301", "cafe"),
        ("İstanbul", "istanbul"),
        ("Straße", "s ##t ##r ##a ##ß ##e"),
        ("strasse", "strasse"),
        ("ﬁ", "[UNK]"),
        ("new\u200byork new\u00adyork", "new ##y ##or ##k new ##y ##or ##k"),
        ("new\x01york new\x00york new\x93york", " ".join(["new ##y ##or ##k"] * 3)),
        ("new\ufffdyork", "new ##y ##or ##k"),
        ("new\xa0york\u3000city\u2028hello\tworld", "new york city hello world"),
        ("[MASK] [unused0]", "[ m ##a ##s ##k ] [ u ##n ##u ##s ##ed ##0 ]"),
        ("中国字の カ", "中 国 字 の [UNK]"),
        ("“new” \U0001f600 $5", "“ new [UNK] \U0001f600 $ 5"),
        ("a" + "\ud83d\ude00" + "\udc80", "a ##\U0001f600"),
        ("", ""),
        (" \n\t ", ""),
    ],
)
def test_hard_strings(text, expected):
    assert pieces(BY_CASE[True], text) == expected.split()


def test_words_are_given_up_on_by_characters_not_bytes():
    tokenizer = WordPiece([*SPECIAL, "é", "##é", "x", "##x"], lowercase=False, longest_word=7)
    assert pieces(tokenizer, "ééééééé éééééééé xxxxxxx xxxxxxxx x.xxxxxx") == [
        *("é", *["##é"] * 6, "[UNK]", "x", *["##x"] * 6, "[UNK]"),
        *("x", "[UNK]", "x", *["##x"] * 5),
    ]
    for letter in "éx":
        found = tokenizer.tokenize([f"x {8 * letter} x"], offsets=True)
        assert list(zip(found.begins, found.ends)) == [(0, 1), (2, 10), (11, 12)]


def test_offsets_count_in_the_original_string():
    text = "Cafe\u0301 \ud83d\ude00 İstanbul\u200b naïve\x00ly"
    found = BY_CASE[True].tokenize(["", text, "The good"], offsets=True)
    shown = [(ROWS[i], text[b:e]) for i, b, e in zip(found.ids, found.begins, found.ends)][: found.splits[2]]
    assert shown == [
        *(("cafe", "Cafe"), ("\U0001f600", "\ud83d\ude00"), ("istanbul", "İstanbul")),
        *(("naive", "naïve"), ("##ly", "ly")),
    ]
    assert list(zip(found.begins[-2:], found.ends[-2:])) == [(0, 3), (4, 8)]


@given(st.text(max_size=30))
def test_alignment_covers_the_result(text):
    for lowercase in (True, False):
        result, begins, ends = normalize_aligned(text, lowercase)
        assert len(result) == len(begins) == len(ends) and result == normalize(text, lowercase)
        assert (np.diff(begins) >= 0).all() and (begins < ends).all() and (ends <= len(text)).all()


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_texts_only_lose_their_case(text):
    if is_plain(text):
        assert normalize(text, True).split() == text.lower().split()


def test_equal_blank_and_odd_rows_keep_their_ids_and_harm_nothing():
    rows = [
        *SPECIAL,
        "",
        "",
        "new",
        "the",
        "new york",
        "new ",
        "the",
        "\u2028",
        "\x00",
        "##",
        "x" * 300,
        "York",
        "[UNK]",
    ]
    tokenizer = WordPiece(rows, lowercase=False)
    assert tokenizer.tokenize(["new york the York " + "x" * 30]).ids.tolist() == [7, 17, 11, 16, 17]


def test_bytes_are_decoded_and_what_is_invalid_is_left_out():
    tokenizer = BY_CASE[True]
    assert pieces(tokenizer, "Café".encode()) == ["cafe"]
    assert pieces(tokenizer, b"new\xff york\xc3") == ["new", "york"]


def test_special_tokens_are_read_only_when_asked_for():
    text = "The [MASK] was[MASK]good.[SEP]"
    found = BY_CASE[True].tokenize([text, "good"], offsets=True, special_tokens=True)
    assert [ROWS[i] for i in found.ids] == ["the", "[MASK]", "was", "[MASK]", "good", ".", "[SEP]", "good"]
    assert found.splits.tolist() == [0, 7, 8]
    assert [text[b:e] for b, e in zip(found.begins[:7], found.ends[:7])] == [
        *("The", "[MASK]", "was", "[MASK]", "good", ".", "[SEP]")
    ]
    assert pieces(BY_CASE[True], "[mask]", special_tokens=True) == ["[", "m", "##a", "##s", "##k", "]"]
    assert pieces(BY_CASE[True], "[CLS]") == ["[", "c", "##l", "##s", "]"]


def test_the_order_and_the_company_of_texts_change_nothing():
    texts = ["good", "Café " * 400, "", "new york", b"bytes \xff"] * 600  # several calls of tensorflow-text
    together = BY_CASE[True].tokenize(texts, offsets=True)
    for row, text in enumerate(texts[:5]):
        alone = BY_CASE[True].tokenize([text], offsets=True)
        for again in (row, row + 2995):
            here = slice(together.splits[again], together.splits[again + 1])
            for name in ("ids", "begins", "ends"):
                assert np.array_equal(getattr(alone, name), getattr(together, name)[here])
    assert together.ids.dtype == np.int32 and len(together.splits) == 3001
    nothing = BY_CASE[True].tokenize([])
    assert nothing.ids.shape == (0,) and nothing.splits.tolist() == [0] and nothing.begins is None


def test_a_text_policy_comes_first():
    reviews = WordPiece.reading("reviews-uncased", ROWS)
    assert pieces(reviews, "Good<br />movie &amp; it\x92s") == ["good", "movie", "&", "it", "’", "s"]
    assert pieces(WordPiece.reading("cased", ROWS), "Hello hello") == ["Hello", "hello"]
    assert pieces(WordPiece.reading("uncased", ROWS), "Hello") == ["hello"]
    with pytest.raises(ConfigError, match="'openai'.*Known: uncased, cased, reviews-uncased, reviews-cased"):
        WordPiece.reading("openai", ROWS)
    with pytest.raises(ConfigError, match="policy"):
        WordPiece(ROWS, policy="none")


def test_a_tokenizer_can_be_sent_to_another_process():
    tokenizer = WordPiece(ROWS, lowercase=False)
    ids = tokenizer.tokenize(["Hello"]).ids
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.vocabulary == Vocabulary(ROWS) and np.array_equal(again.tokenize(["Hello"]).ids, ids)


def test_what_is_no_text_is_refused():
    for wrong in ("one text", [None], [1.5], 3):
        with pytest.raises(TextError):
            BY_CASE[True].tokenize(wrong)
    with pytest.raises(TextError, match="2 texts and 1 second"):
        BY_CASE[True].encode(["a", "b"], ["c"])
    with pytest.raises(ConfigError, match="longest_word=0"):
        WordPiece(ROWS, longest_word=0)


def test_without_tensorflow_text_the_missing_part_is_named(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "tensorflow_text":
            raise ImportError("No module named 'tensorflow_text'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingPartError, match="pip install 'tensorflow-text"):
        WordPiece(ROWS).tokenize(["good"])
