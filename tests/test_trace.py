"""Tracing: every byte, any length, characters whole, pictures safe."""

from __future__ import annotations

import io
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbzoo.errors import CheckpointError, ConfigError, NotFittedError, TextError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.states import PreparedModel
from lbzoo.trace import Span, Trace, sentiment_unit, trace
from lbzoo.transfer.probe import Probe

UNITS = 16


@pytest.fixture(scope="module")
def prepared():
    card = {"name": "tiny", "sentiment_unit": 3, "polarity": -1}
    return PreparedModel(MLSTMLanguageModel(MLSTMConfig(units=UNITS, embedding_dim=8), card=card, seed=1))


def made(text, values=None, **options):
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    values = np.linspace(-1, 1, len(data)) if values is None else np.asarray(values)
    return Trace(data, values.astype(np.float32), "unit 0", **options)


def states_one_by_one(model, data, state):
    carried, out = model.initial_state(1), []
    for byte in data:
        carried = model.run(np.array([[byte]], np.int32), state=carried)[1]
        out.append(carried[0 if state == "cell" else 1].numpy()[0])
    return np.array(out)


@pytest.mark.parametrize("state", ["cell", "hidden"])
def test_follows_a_unit_byte_by_byte(prepared, state):
    found = trace("I loved it, caf\u00e9!", prepared, unit=5, state=state)
    assert found.data == "\n I loved it, café! ".encode()
    wanted = states_one_by_one(prepared.model, found.data, state)[:, 5]
    assert found.values.dtype == np.float32
    np.testing.assert_allclose(found.values, wanted, atol=1e-6)
    assert found.name == f"unit 5 of the {state} state" and found.polarity == 1


def test_the_last_value_is_the_feature_whatever_the_length(prepared):
    for length in (0, 1, 511, 512, 513, 3000):
        data = bytes(np.random.default_rng(length).integers(0, 256, length, np.uint8))
        values = trace(data, prepared, unit=7).values
        assert len(values) == length
        if length:
            np.testing.assert_allclose(values[-1], prepared.reader().read([data])[0, 7], atol=1e-5)


def test_the_sentiment_unit_comes_from_the_card(prepared):
    found = trace("good", prepared)
    assert found.name == "unit 3 of the cell state" and found.polarity == -1
    np.testing.assert_array_equal(found.values, trace("good", prepared, unit=3).values)
    bare = MLSTMLanguageModel(MLSTMConfig(units=UNITS, embedding_dim=8), seed=1)
    with pytest.raises(NotFittedError, match="names no sentiment unit"):
        trace("good", bare)
    assert trace("good", bare, unit=np.int64(0)).polarity == 1


@pytest.mark.parametrize("pool", ["last", "mean", "max"])
@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "c"]])
def test_a_probes_score_is_that_of_the_text_so_far(prepared, pool, tanh, classes):
    rng = np.random.default_rng(0)
    rows = 1 if len(classes) == 2 else 3
    probe = Probe(rng.standard_normal((rows, UNITS)), np.zeros(rows), classes, pool=pool, tanh=tanh, state="hidden")
    data = bytes(rng.integers(32, 127, 1300, np.uint8))
    found = trace(data, prepared, probe=probe, label="b")
    prefixes = [1, 2, 64, 511, 512, 513, 1024, 1300]
    features = prepared.reader("hidden", pool, tanh).read([data[:n] for n in prefixes])
    scores = probe.decision_function(features)
    wanted = scores if rows == 1 else scores[:, 1]
    np.testing.assert_allclose(found.values[np.array(prefixes) - 1], wanted, atol=1e-5)
    assert found.name == "score of 'b'"


def test_the_label_that_is_followed(prepared):
    two = Probe(np.ones((1, UNITS)), [0.5], ["no", "yes"])
    three = Probe(np.eye(3, UNITS), [0, 0, 9], ["a", "b", "c"])
    assert trace("x", prepared, probe=two).name == "score of 'yes'"
    np.testing.assert_array_equal(
        trace("x", prepared, probe=two, label="no").values, -trace("x", prepared, probe=two).values
    )
    assert trace("x", prepared, probe=three).name == "score of 'c'"
    assert trace(b"", prepared, probe=three).values.shape == (0,)
    with pytest.raises(ConfigError, match="does not know this label. Received: 'd'"):
        trace("x", prepared, probe=three, label="d")


def test_refusals(prepared):
    probe = Probe(np.ones((1, UNITS)), [0], [0, 1])
    with pytest.raises(TextError, match="must be str or bytes"):
        trace(None, prepared)
    for unit in (-1, UNITS, 1.0, True, "3"):
        with pytest.raises(ConfigError, match="unit must be an integer from 0 to 15"):
            trace("x", prepared, unit=unit)
    with pytest.raises(ConfigError, match="not both"):
        trace("x", prepared, unit=1, probe=probe)
    with pytest.raises(ConfigError, match="state must be"):
        trace("x", prepared, unit=1, state="c")
    with pytest.raises(ConfigError, match="reads 2 features; the model has 16"):
        trace("x", prepared, probe=Probe([[1.0, 1.0]], [0], [0, 1]))


@pytest.mark.parametrize(
    "unit, polarity", [(16, 1), (-1, 1), ("3", 1), (True, 1), (3, 0), (3, "up"), (3, True), (3.0, 1)]
)
def test_a_card_that_makes_no_sense(unit, polarity):
    with pytest.raises(CheckpointError, match="sentiment_unit must be 0 to 15"):
        sentiment_unit({"sentiment_unit": unit, "polarity": polarity}, UNITS)
    assert sentiment_unit({}, UNITS) == sentiment_unit(None, UNITS) == (None, 1)
    assert sentiment_unit({"sentiment_unit": 2}, UNITS) == (2, 1)


def test_bytes_of_a_character_are_merged():
    found = made("aé€😀", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert list(found) == [("a", 1.0), ("é", 3.0), ("€", 6.0), ("😀", 10.0)]
    assert len(found) == 4 and found[-1] == Span("😀", 10.0) and found[1:3] == [("é", 3.0), ("€", 6.0)]
    assert list(made(b"")) == []


@given(st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_spans_cover_any_bytes(data):
    spans = made(data, np.arange(len(data))).spans
    ends = [int(span.value) for span in spans]
    assert ends == sorted(set(ends)) and (not data or ends[-1] == len(data) - 1)
    pieces = [data[a + 1 : b + 1] for a, b in zip([-1, *ends], ends)]
    assert b"".join(pieces) == data
    for piece, span in zip(pieces, spans):
        valid = piece.decode("utf-8", "replace")
        assert span.text == valid and len(valid) == 1


def test_words():
    found = made("\n good caf\u00e9 ", np.arange(13))
    assert found.words() == [("good", 5.0), ("café", 11.0)]


def test_terminal_colours_only_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    found = made("\n bad good ", [0, 0, 0, 0, -1, -1, 0, 0, 0, 1, 1])
    assert "\x1b[" not in found.to_terminal(stream=io.StringIO())
    assert found.to_terminal(stream=io.StringIO()) == "bad[-1.00] good[+1.00]"
    coloured = found.to_terminal(stream=Terminal())
    assert "48;5;" in coloured and coloured.endswith("\x1b[0m")
    assert coloured == found.to_terminal(colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in found.to_terminal(stream=Terminal())


def test_colours_follow_polarity():
    high = made("x", [1]).to_terminal(colour=True)
    low = made("x", [-1]).to_terminal(colour=True)
    assert high == made("x", [-1], polarity=-1).to_terminal(colour=True) != low
    assert made("x", [0]).to_terminal(colour=True) not in (high, low)
    assert made("x", [1]).to_terminal(colour=True, scale=1e9) == made("x", [0]).to_terminal(colour=True)


def test_hostile_text_cannot_steer_the_terminal():
    found = made("a\x1b[2J\x07\x00\x7f\u202eb\tc\u0085d")
    for picture in (found.to_terminal(colour=False), found.to_terminal(colour=True).replace("\x1b[", "")):
        assert not set(picture) & set("\x1b\x07\x00\x7f\u202e\t\u0085")
    assert "␛[2J␇␀␡" in found.to_terminal(colour=True, scale=1e9)


def test_a_line_break_in_colour_is_outside_the_colour():
    picture = made("ab\n\ncd", [1] * 6).to_terminal(colour=True)
    start = picture[: picture.index("a")]
    assert picture == f"{start}ab\x1b[0m\n\n{start}cd\x1b[0m"


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.shown, self.depth = [], "", 0

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.depth += tag == "span"

    def handle_endtag(self, tag):
        self.depth -= tag == "span"

    def handle_data(self, data):
        self.shown += data if self.depth else ""


def test_html_is_escaped_and_self_contained():
    text = """<script>alert("x")</script> & 'q' <b onclick=1> \ud800 é"""
    page = Page()
    html = made(text).to_html(title="</title><script>")
    page.feed(html)
    assert page.shown == text.replace("\ud800", "\ufffd\ufffd\ufffd")
    assert "script" not in page.tags and "b" not in page.tags
    assert "http" not in html and "src=" not in html
    html.encode("utf-8")
    assert "unit 0" in made("x").to_html()
    assert made(b"").to_html() and made(b" \n").to_html()


def test_scale_is_checked():
    for scale in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="scale"):
            made("x").to_html(scale=scale)


def test_a_long_text_gives_a_short_page():
    assert len(made("word " * 20_000).to_html()) < 250_000


def test_tracing_again_compiles_nothing(prepared):
    from lbzoo.trace import _compiled

    for text in ("a", "bb" * 700, "ccc"):
        trace(text, prepared, unit=0)
    assert _compiled[prepared]["cell"].experimental_get_tracing_count() == 1
