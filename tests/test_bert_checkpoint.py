"""BERT in checkpoint folders: the head, the labels and the vocabulary come back with the weights."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lbzoo import checkpoint, folder
from lbzoo.errors import CheckpointError
from lbzoo.models.bert import BertEncoder, model_for
from lbzoo.models.config import HEADS, BertConfig
from lbzoo.text.vocabulary import SPECIAL, Vocabulary
from tests.test_checkpoint import reseal

CONFIG = BertConfig(
    vocab_size=12,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=8,
)
PIECES = Vocabulary([*SPECIAL, "good", "bad", "##ly", " odd ", "\u2028", ""])


def made(head=None):
    labels = ("no", "yes") if head == "classifier" else ()
    config = BertConfig(**{**CONFIG.to_dict(), "head": head, "labels": labels})
    return model_for(config)(config, "cased", {"license": "none"}, PIECES, seed=3)


@pytest.mark.parametrize("head", [None, *HEADS])
def test_a_model_comes_back_bit_by_bit(head, tmp_path):
    model = made(head)
    place = model.save_pretrained(tmp_path / "m")
    back = checkpoint.load(place)
    assert (type(back), back.config, back.text) == (type(model), model.config, "cased")
    assert back.vocabulary == PIECES and back.card["license"] == "none"
    for name, variable in model.named_weights().items():
        np.testing.assert_array_equal(back.named_weights()[name].numpy(), variable.numpy())
    assert sorted(path.name for path in place.iterdir()) == [
        "card.json",
        "config.json",
        "model.safetensors",
        "vocab.txt",
    ]
    assert back.save_pretrained(place) == place  # in its own place, vocabulary and all


def test_a_changed_vocabulary_is_an_error(tmp_path):
    place = made().save_pretrained(tmp_path / "m")
    with (place / "vocab.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt has changed"):
        checkpoint.load(place)


def test_a_vocabulary_is_not_needed_where_texts_play_no_part(tmp_path):
    place = BertEncoder(CONFIG, seed=1).save_pretrained(tmp_path / "m")
    assert checkpoint.load(place).vocabulary is None and not (place / "vocab.txt").exists()


def test_random_weights_only_when_asked(tmp_path):
    place = made().save_pretrained(tmp_path / "m")
    (place / "model.safetensors").unlink()
    assert checkpoint.load(place, weights=False).named_weights()["pooler/kernel"].numpy().any()
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.load(place)


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("text", "reviews", "text must be uncased or cased or reviews-uncased"),
        ("architecture", "gpt", "architecture must be mlstm or bert"),
        ("config", {**CONFIG.to_dict(), "hidden_act": "gelu"}, "hidden_act must be one of"),
        ("config", {**CONFIG.to_dict(), "head": "masked-lm"}, "missing tensor mlm/"),
    ],
)
def test_a_faulty_config_is_told(field, value, message, tmp_path):
    place = made().save_pretrained(tmp_path / "m")
    reseal(place, lambda values: values.update({field: value}))
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(place)


def test_the_config_file_holds_plain_values(tmp_path):
    place = made("classifier").save_pretrained(tmp_path / "m")
    values = json.loads((place / "config.json").read_bytes())
    assert values["architecture"] == "bert" and values["config"]["labels"] == ["no", "yes"]
    assert set(folder.manifest_files(place)) == {"config.json", "model.safetensors", "vocab.txt", "card.json"}
