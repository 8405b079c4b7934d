"""Filling masks: the numbers, which pieces are offered, the text with them in place, and the command."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

import lbzoo
from lbzoo.errors import ConfigError, TextError
from lbzoo.models.bert import BertForMaskedLM, model_for
from lbzoo.models.config import BertConfig
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from tests import bert_reference as reference
from tests.conftest import one_error, seeded

WORDS = ["good", "bad", "film", "the", "was", "##ly", "."]
VOCABULARY = Vocabulary([*SPECIAL, *WORDS])
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY) + 3,  # as where a vocabulary is padded
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=10,
    pooler=False,
    head="masked-lm",
    layer_norm_eps=1e-7,
)
TEXT = "The film was [MASK]."


@pytest.fixture(scope="module")
def model():
    return seeded(BertForMaskedLM(CONFIG, vocabulary=VOCABULARY))


@pytest.fixture(scope="module")
def filler(model):
    return lbzoo.MaskFiller(model)


def expected(model, ids, place):
    w = {name: variable.numpy() for name, variable in model.named_weights().items()}
    hidden = reference.encode(w, CONFIG, np.array([ids]))[-1]
    logits = reference.masked_lm(w, CONFIG, hidden)[0, place]
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


def test_probabilities_are_the_models_and_the_best_come_first(model, filler):
    ((guesses,),) = filler.fill([TEXT], top=7)
    wanted = expected(model, [2, 8, 7, 9, 4, 11, 3], 4)
    assert {guess.piece for guess in guesses} == set(WORDS)
    for guess in guesses:
        assert abs(guess.probability - wanted[VOCABULARY.ids[guess.piece]]) < 1e-5
    assert [g.probability for g in guesses] == sorted((g.probability for g in guesses), reverse=True)


def test_the_text_is_filled_and_pieces_that_continue_a_word_join_it(filler):
    for guess in filler.fill(["The film, good [MASK]!"], top=7)[0][0]:
        assert guess.text == ("The film, goodly!" if guess.piece == "##ly" else f"The film, good {guess.piece}!")


def test_each_mask_is_filled_by_itself(filler):
    first, second = filler.fill(["[MASK] was [MASK]."], top=1)[0]
    assert first[0].text == f"{first[0].piece} was [MASK]." or first[0].piece == "##ly"
    assert second[0].text.startswith("[MASK] was")


def test_a_text_does_not_depend_on_its_company(filler):
    texts = [TEXT, "[MASK]", b"bad [MASK] film [MASK]", "the [MASK] the the the the"]
    together = filler.fill(texts)
    assert [len(masks) for masks in together] == [1, 1, 2, 1]
    for text, masks in zip(texts, together):
        for one, other in zip(masks, filler.fill([text])[0]):
            assert [g.piece for g in one] == [g.piece for g in other]
            np.testing.assert_allclose([g.probability for g in one], [g.probability for g in other], atol=1e-6)
    assert filler.fill([]) == []


def test_the_head_of_pre_training_does_as_well(model, filler):
    config = BertConfig(**{**CONFIG.to_dict(), "head": "pretraining", "pooler": True})
    pretrained = model_for(config)(config, vocabulary=VOCABULARY)
    for name, variable in model.named_weights().items():
        pretrained.named_weights()[name].assign(variable)
    for one, other in zip(lbzoo.MaskFiller(pretrained).fill([TEXT])[0][0], filler.fill([TEXT])[0][0]):
        assert one.piece == other.piece and abs(one.probability - other.probability) < 1e-6


@pytest.mark.parametrize(
    "text, message",
    [("The film.", r"text 0 has no \[MASK\]"), ("the " * 12 + "[MASK]", r"beyond the 10 tokens"), ("[mask]", "has no")],
)
def test_a_mask_must_be_there(filler, text, message):
    with pytest.raises(TextError, match=message):
        filler.fill([text])


def test_what_cannot_fill_masks(model, tiny_model):
    for other in (model.with_head(None), tiny_model, BertForMaskedLM(CONFIG), 3):
        with pytest.raises(ConfigError, match="filling masks needs a BERT"):
            lbzoo.MaskFiller(other)
    with pytest.raises(ConfigError, match="top must be a positive integer"):
        lbzoo.MaskFiller(model).fill([TEXT], top=0)


def test_the_command_writes_a_row_for_each_guess(model, filler, tmp_path, run):
    folder = model.save_pretrained(tmp_path / "m")
    status, out, err = run("fill-mask", TEXT, "good [MASK] [MASK]", "--model", folder, "--top", 2)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (status, err) == (0, "") and [row["mask"] for row in rows] == ["1", "1", "1", "1", "2", "2"]
    best = filler.fill([TEXT], 1)[0][0][0]
    assert (rows[0]["text"], rows[0]["piece"], rows[0]["filled"]) == (TEXT, best.piece, best.text)
    assert abs(float(rows[0]["probability"]) - best.probability) < 1e-5


def test_the_command_says_what_is_wrong(model, probed, tmp_path, run):
    folder = model.save_pretrained(tmp_path / "m")
    for arguments, words in (
        (("The film.", "--model", folder), "has no [MASK] to fill"),
        ((TEXT, "--model", probed), "needs a BERT with a masked-lm head"),
        ((TEXT, "--model", "bert-bse-uncased"), "Did you mean bert-base-uncased"),
    ):
        status, out, err = run("fill-mask", *arguments)
        assert status == 1 and words in one_error(err)
