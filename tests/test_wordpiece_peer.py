"""Nothing is told apart from the `tokenizers` library but what the table of lbzoo/text/wordpiece.py lists."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbzoo.text.vocabulary import Vocabulary, read_vocabulary
from lbzoo.text.wordpiece import WordPiece
from tests import wordpiece_peer
from tests.small_vocabulary import small_vocabulary

pytest.importorskip("tensorflow_text", reason="tensorflow-text has no wheel for this platform")
VOCABULARY = Vocabulary(small_vocabulary())
OURS = {lowercase: WordPiece(VOCABULARY, lowercase) for lowercase in (True, False)}
PEERS = {lowercase: wordpiece_peer.peer(VOCABULARY, lowercase) for lowercase in (True, False)}
HARD = [
    *(
        "Café naïve",
        "Cafe\u0301",
        "İstanbul",
        "Straße",
        "ﬁn",
        "new\u200byork",
        "new\u00adyork",
        "new\x01york",
        "a\x00b",
    ),
    *(
        "new\ufffdyork",
        "new\xa0york",
        "new\u3000york",
        "new\u2028york",
        "new\u2029york",
        "new\x85york",
        "it\x92s",
        "new\ue000york \uf0b7",
    ),
    *("[unused0]", "中国のカ한", "\U0001f600 good", "“it’s”", "$5.00", "a\tb\nc\rd", "x" * 100, "x" * 101, "x" * 201),
    *(
        "é" * 60,
        "é" * 100,
        "é" * 101,
        "...!?--",
        "##ing",
        "",
        " ",
        "\ufeffthe",
        "e\u0327\u0301e",
        "ａｂ",
        "\u1f88",
        "ŉ",
    ),
]
DIFFERENT = {  # the table
    "The [MASK] was good": "special tokens in a text",
    "ΟΔΟΣ": "final sigma",
    "a\U0002b820b": "Chinese",
    "a\u2e52b": "newer punctuation",
    "a\u08e2b": "newer format character",
}


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_hard_strings(lowercase):
    assert wordpiece_peer.differences(OURS[lowercase], PEERS[lowercase], HARD) == []


@pytest.mark.parametrize("text", DIFFERENT, ids=DIFFERENT.values())
def test_what_the_table_lists_does_differ(text):
    assert wordpiece_peer.differences(OURS[True], PEERS[True], [text]) == [text]


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@settings(max_examples=25)
@given(st.data())
def test_pairs_are_cut_alike(lowercase, data):
    text = st.lists(st.sampled_from([*"é中a.-", "good ", "the ", "Hello ", " ", "[", "İ"]), max_size=20).map("".join)
    texts = data.draw(st.lists(st.tuples(text, text), min_size=1, max_size=4))
    first, second = map(list, zip(*texts))
    room = data.draw(st.integers(4, 40))
    assert wordpiece_peer.differences(OURS[lowercase], PEERS[lowercase], first, second, room) == []


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("name", wordpiece_peer.SETS)
def test_a_sample_of_each_set(name, lowercase, data_dir):
    vocabulary = read_vocabulary(data_dir / "bert" / "vocab.txt")
    texts = itertools.islice(wordpiece_peer.SETS[name](data_dir), 0, 3000, 15)
    count, found = wordpiece_peer.compare(texts, vocabulary, lowercase)
    assert count == 200 and found == []


def test_a_sample_of_glues_pairs(data_dir):
    vocabulary = read_vocabulary(data_dir / "bert" / "vocab.txt")
    count, found = wordpiece_peer.compare_pairs(
        itertools.islice(wordpiece_peer.glue_pairs(data_dir), 0, 6000, 20), vocabulary, lowercase=True
    )
    assert count == 300 and found == []
