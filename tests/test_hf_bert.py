"""Hugging Face BERT folders: which tensor is which, what is refused, and the way back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors import safe_open

import lbzoo
from lbzoo import checkpoint
from lbzoo.convert import hf_bert
from lbzoo.convert.hf_config import read_config, write_config
from lbzoo.errors import CheckpointError
from lbzoo.models.bert import model_for
from lbzoo.models.config import ACTIVATIONS, HEADS, BertConfig
from tests import bert_reference as reference
from tests import hf_folder as hf

IDS = np.array([[2, 5, 6, 8, 3], [2, 7, 3, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def load(folder):
    return lbzoo.load(folder)


def hidden(tensors, prefix="", norms=("weight", "bias")):
    """The last vectors, from their names to the equations, without lbzoo's converter."""
    w = {
        "embeddings/token": tensors[f"{prefix}embeddings.word_embeddings.weight"],
        "embeddings/position": tensors[f"{prefix}embeddings.position_embeddings.weight"],
        "embeddings/segment": tensors[f"{prefix}embeddings.token_type_embeddings.weight"],
    }

    def put(ours, theirs):
        w[f"{ours}/kernel"], w[f"{ours}/bias"] = tensors[f"{theirs}.weight"].T, tensors[f"{theirs}.bias"]

    def put_norm(ours, theirs):
        w[f"{ours}/layer_norm/gamma"] = tensors[f"{theirs}.LayerNorm.{norms[0]}"]
        w[f"{ours}/layer_norm/beta"] = tensors[f"{theirs}.LayerNorm.{norms[1]}"]

    put_norm("embeddings", f"{prefix}embeddings")
    for i in range(2):
        theirs = f"{prefix}encoder.layer.{i}"
        for part in ("query", "key", "value"):
            put(f"layer_{i}/attention/{part}", f"{theirs}.attention.self.{part}")
        put(f"layer_{i}/attention/output", f"{theirs}.attention.output.dense")
        put_norm(f"layer_{i}/attention", f"{theirs}.attention.output")
        put(f"layer_{i}/ffn/inner", f"{theirs}.intermediate.dense")
        put(f"layer_{i}/ffn/output", f"{theirs}.output.dense")
        put_norm(f"layer_{i}/ffn", f"{theirs}.output")
    sizes = {name: hf.CONFIG[name] for name in hf.CONFIG if name in BertConfig.__dataclass_fields__}
    return reference.encode(w, BertConfig(**{**sizes, "hidden_act": "gelu_erf"}), IDS, mask=MASK)[-1]


@pytest.mark.parametrize("prefix", ["", "bert.", "module.bert.", "0.auto_model."])
@pytest.mark.parametrize("norms", [("weight", "bias"), ("gamma", "beta")])
def test_an_encoder_under_any_prefix_and_naming(tmp_path, prefix, norms):
    tensors = hf.encoder(prefix, norms)
    model = load(hf.write(tmp_path / "m", tensors))
    assert isinstance(model, lbzoo.BertEncoder) and model.text == "uncased" and len(model.vocabulary) == 9
    found, expected = model(IDS, mask=MASK), hidden(tensors, prefix, norms)
    np.testing.assert_allclose(found.hidden[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(found.hidden[1, :3], expected[1, :3], atol=1e-4)
    pooled = np.tanh(expected[:, 0] @ tensors[f"{prefix}pooler.dense.weight"].T + tensors[f"{prefix}pooler.dense.bias"])
    np.testing.assert_allclose(found.pooled, pooled, atol=1e-5)


def test_without_a_pooler(tmp_path):
    model = load(hf.write(tmp_path / "m", hf.encoder("", pooler=False)))
    assert not model.config.pooler and model(IDS).pooled is None


@pytest.mark.parametrize("norms", [("weight", "bias"), ("gamma", "beta")])
def test_the_heads_of_pre_training(tmp_path, norms):
    tensors = {**hf.encoder(norms=norms), **hf.masked_lm(norms=norms), **hf.next_sentence()}
    model = load(hf.write(tmp_path / "m", tensors, architectures=["BertForMaskedLM"]))  # as on the Hub
    assert isinstance(model, lbzoo.BertForPreTraining)
    found, below = model(IDS, mask=MASK), hidden(tensors, "bert.", norms)
    pooled = np.tanh(below[:, 0] @ tensors["bert.pooler.dense.weight"].T + tensors["bert.pooler.dense.bias"])
    wanted = pooled @ tensors["cls.seq_relationship.weight"].T + tensors["cls.seq_relationship.bias"]
    np.testing.assert_allclose(found.next_sentence, wanted, atol=1e-4)
    head = "cls.predictions.transform"
    x = reference.gelu_erf(below[0] @ tensors[f"{head}.dense.weight"].T + tensors[f"{head}.dense.bias"])
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    x = x * tensors[f"{head}.LayerNorm.{norms[0]}"] + tensors[f"{head}.LayerNorm.{norms[1]}"]
    wanted = x @ tensors["bert.embeddings.word_embeddings.weight"].T + tensors["cls.predictions.bias"]
    np.testing.assert_allclose(found.masked_lm[0], wanted, atol=2e-4)


def test_a_decoder_in_the_file_is_the_embedding_or_an_error(tmp_path):
    tensors = {**hf.encoder(pooler=False), **hf.masked_lm()}
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()
    model = load(hf.write(tmp_path / "m", tensors))
    assert isinstance(model, lbzoo.BertForMaskedLM) and hf_bert.inspect_folder(tmp_path / "m").skipped == ()
    for name in ("weight", "bias"):
        other = {**tensors, f"cls.predictions.decoder.{name}": tensors[f"cls.predictions.decoder.{name}"] + 1}
        with pytest.raises(CheckpointError, match=rf"decoder\.{name} must equal"):
            load(hf.write(tmp_path / name, other))
    del tensors["cls.predictions.bias"]
    again = load(hf.write(tmp_path / "only", tensors))
    np.testing.assert_array_equal(again.named_weights()["mlm/bias"], model.named_weights()["mlm/bias"])


def test_a_classifier_has_its_labels_in_the_order_of_their_numbers(tmp_path):
    tensors = {**hf.encoder(), **hf.classifier(3)}
    labels = {"2": "good", "0": "bad", "1": "fair"}
    config = {"architectures": ["BertForSequenceClassification"], "id2label": labels, "classifier_dropout": 0.3}
    model = load(hf.write(tmp_path / "m", tensors, **config))
    assert isinstance(model, lbzoo.BertClassifier) and model.config.labels == ("bad", "fair", "good")
    assert model.config.classifier_dropout == 0.3
    below = hidden(tensors, "bert.")
    pooled = np.tanh(below[:, 0] @ tensors["bert.pooler.dense.weight"].T + tensors["bert.pooler.dense.bias"])
    wanted = pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    np.testing.assert_allclose(model(IDS, mask=MASK), wanted, atol=1e-4)


def test_one_number_a_text_is_a_regressor(tmp_path):
    tensors = {**hf.encoder(), **hf.classifier(1)}
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    assert load(hf.write(tmp_path / "m", tensors, **config))(IDS).shape == (2,)


def test_what_no_part_of_the_model_reads_is_named(tmp_path):
    tensors = {**hf.encoder(), "qa_outputs.weight": np.zeros((2, 8), "f4"), **hf.classifier(4)}
    tensors["bert.embeddings.position_ids"] = np.arange(10)[None]
    folder = hf.write(tmp_path / "m", tensors, architectures=["BertForTokenClassification"])
    skipped = ("bert.embeddings.position_ids", "classifier.bias", "classifier.weight", "qa_outputs.weight")
    assert hf_bert.inspect_folder(folder).skipped == skipped
    assert isinstance(load(folder), lbzoo.BertEncoder) and load(folder).card["left_out"] == list(skipped)
    tensors["bert.embeddings.position_ids"] = np.arange(10)[None] + 1
    with pytest.raises(CheckpointError, match="must count from 0"):
        load(hf.write(tmp_path / "other", tensors))


@pytest.mark.parametrize("dtype", ["f2", "bf16"])
def test_half_the_bytes_are_read_as_float32(tmp_path, dtype):
    full = hf.encoder()
    tensors = {name: array.astype("f2") for name, array in full.items()}
    folder = hf.write(tmp_path / "m", tensors)
    if dtype == "bf16":  # which NumPy cannot write: the same bytes under another name
        data = (folder / "model.safetensors").read_bytes()
        upper = b"".join((full[n].view("<u4") >> 16).astype("<u2").tobytes() for n in in_file(folder))
        head = data[: len(data) - len(upper)].replace(b'"F16" ', b'"BF16"').replace(b'"F16"', b'"BF16"')
        size = len(head) - 8
        (folder / "model.safetensors").write_bytes(size.to_bytes(8, "little") + head[8:] + upper)
        tensors = {n: (a.view("<u4") & 0xFFFF0000).view("<f4") for n, a in full.items()}
    weights = load(folder).named_weights()
    wanted = tensors["bert.encoder.layer.0.intermediate.dense.weight"].T
    np.testing.assert_array_equal(weights["layer_0/ffn/inner/kernel"], wanted.astype("f4"))
    assert weights["layer_0/ffn/inner/kernel"].dtype == "float32"


def in_file(folder):
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header.pop("__metadata__", None)
    return sorted(header, key=lambda name: header[name]["data_offsets"])


# what cannot be honoured


@pytest.mark.parametrize(
    "config, message",
    [
        ({"model_type": "roberta"}, "must be of a Hugging Face BERT"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"is_decoder": True}, "is_decoder must be False"),
        ({"is_decoder": 0}, "is_decoder must be False"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "modeling.Mine"}}, "auto_map"),
        ({"alibi": True}, "alibi is no field whose effect lbzoo knows"),
        ({"hidden_act": "mish"}, "hidden_act must be one of"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"num_attention_heads": 3}, "num_attention_heads must divide"),
        ({"num_hidden_layers": 1}, "has no place for"),
        ({"num_hidden_layers": 3}, "missing tensor"),
        ({"hidden_size": 16}, "must have shape"),
        ({"vocab_size": 10}, "must have shape"),
    ],
)
def test_a_field_is_honoured_or_refused(tmp_path, config, message):
    with pytest.raises(CheckpointError, match=message):
        hf_bert.inspect_folder(hf.write(tmp_path / "m", hf.encoder(), **config))


@pytest.mark.parametrize(
    "config, message",
    [
        ({"problem_type": "multi_label_classification"}, "problem_type"),
        ({"problem_type": "regression"}, "a regression gives one number"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label must name classes 0, 1"),
        ({"id2label": {"0": "a", "1": "a"}}, "labels must be two or more different names"),
        ({"id2label": ["a", "b"]}, "id2label"),
    ],
)
def test_labels_are_names_in_order(tmp_path, config, message):
    tensors = {**hf.encoder(), **hf.classifier(2)}
    with pytest.raises(CheckpointError, match=message):
        hf_bert.inspect_folder(hf.write(tmp_path / "m", tensors, **{"architectures": None, **config}))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"do_lower_case": False, "strip_accents": True}, "strip_accents must be False"),
        ({"do_lower_case": True, "strip_accents": False}, "strip_accents must be True"),
        ({"do_lower_case": "yes"}, "do_lower_case"),
        ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars must be True"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize must be True"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class must be one of"),
    ],
)
def test_a_tokenizers_option_is_honoured_or_refused(tmp_path, options, message):
    with pytest.raises(CheckpointError, match=message):
        hf_bert.inspect_folder(hf.write(tmp_path / "m", hf.encoder(), options))


def test_case_is_what_the_files_say_else_what_the_vocabulary_shows(tmp_path):
    folder = hf.write(tmp_path / "m", hf.encoder(), {"do_lower_case": False})
    assert hf_bert.inspect_folder(folder).text == "cased"
    (folder / "tokenizer_config.json").unlink()
    assert hf_bert.inspect_folder(folder).text == "uncased"
    (folder / "vocab.txt").write_text("\n".join([*hf.PIECES[:-1], "The"]))
    assert hf_bert.inspect_folder(folder).text == "cased"
    normalizer = {"type": "BertNormalizer", "lowercase": True}
    (folder / "tokenizer.json").write_text(json.dumps({"normalizer": normalizer}))
    assert hf_bert.inspect_folder(folder).text == "uncased"


def test_the_vocabulary_may_be_in_tokenizer_json_alone(tmp_path):
    folder = hf.write(tmp_path / "m", hf.encoder())
    expected = load(folder).vocabulary
    (folder / "vocab.txt").unlink()
    pieces = {piece: number for number, piece in reversed(list(enumerate(hf.PIECES[:-1])))}
    whole = {"model": {"type": "WordPiece", "vocab": pieces}, "added_tokens": [{"id": 8, "content": "."}]}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    assert load(folder).vocabulary == expected
    whole["model"]["type"] = "BPE"
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(CheckpointError, match="must hold a WordPiece vocabulary"):
        load(folder)


def test_a_folder_without_a_tokenizer_is_a_model_without_a_vocabulary(tmp_path):
    model = random_model(None)
    hf_bert.write_folder(tmp_path / "m", model.config, "uncased", numbers(model), None)
    assert load(tmp_path / "m").vocabulary is None and load(tmp_path / "m").text == "uncased"


def test_a_wrong_folder_gives_one_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read, so .* is no Hugging Face model"):
        hf_bert.inspect_folder(tmp_path / "none")
    folder = hf.write(tmp_path / "m", hf.encoder())
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"holds no model\.safetensors.*pytorch_model\.bin"):
        hf_bert.inspect_folder(folder)
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        hf_bert.inspect_folder(folder)
    with pytest.raises(CheckpointError, match="must hold one tensor"):
        hf_bert.inspect_folder(hf.write(tmp_path / "other", {"a": np.zeros(3, "f4")}))
    wrong = {**hf.encoder(), "bert.pooler.dense.bias": np.zeros(8, "f8")}
    with pytest.raises(CheckpointError, match="must be one of F32, F16, BF16. Received: F64"):
        hf_bert.inspect_folder(hf.write(tmp_path / "double", wrong))


# and back


def random_model(head, **changes):
    labels = ("no", "yes", "perhaps") if head == "classifier" else ()
    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12)
    config = BertConfig(**{**config.to_dict(), "head": head, "labels": labels, **changes})
    model = model_for(config)(config, "cased", seed=None)
    rng = np.random.default_rng(9)
    for variable in model.named_weights().values():
        variable.assign(rng.normal(size=variable.shape))
    return model


def numbers(model):
    return {name: variable.numpy() for name, variable in model.named_weights().items()}


@pytest.mark.parametrize("head", [None, *HEADS])
@pytest.mark.parametrize("act", ACTIVATIONS)
def test_ours_to_theirs_and_back_is_exact(tmp_path, head, act):
    model = random_model(head, hidden_act=act, hidden_dropout_prob=0.2, layer_norm_eps=1e-5)
    vocabulary = load(hf.write(tmp_path / "v", hf.encoder())).vocabulary
    hf_bert.write_folder(tmp_path / "theirs", model.config, model.text, numbers(model), vocabulary)
    back = load(tmp_path / "theirs")
    assert (type(back), back.config, back.text) == (type(model), model.config, "cased")
    assert back.vocabulary == vocabulary
    for name, array in numbers(model).items():
        np.testing.assert_array_equal(back.named_weights()[name], array)


def test_what_is_written_has_their_names_and_order(tmp_path):
    model = random_model("pretraining")
    hf_bert.write_folder(tmp_path / "m", model.config, model.text, numbers(model), None)
    wanted = {**hf.encoder(), **hf.masked_lm(), **hf.next_sentence()}
    with safe_open(tmp_path / "m" / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        found = {name: file.get_tensor(name) for name in file.keys()}
    shapes = {name: array.shape for name, array in wanted.items()}
    shapes["bert.embeddings.position_embeddings.weight"] = (512, 8)
    assert {name: array.shape for name, array in found.items()} == shapes
    np.testing.assert_array_equal(found["cls.seq_relationship.weight"], numbers(model)["nsp/kernel"].T)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["architectures"] == ["BertForPreTraining"]


def test_nothing_is_written_over(tmp_path):
    folder = hf.write(tmp_path / "m", hf.encoder())
    model = random_model(None)
    with pytest.raises(CheckpointError, match="must be new or empty"):
        hf_bert.write_folder(folder, model.config, model.text, numbers(model), None)


def test_the_other_name_of_an_activation_is_written_as_the_usual_one():
    values = {**hf.CONFIG, "hidden_act": "gelu_pytorch_tanh"}
    config = read_config(values, None, True, "config.json")
    assert config.hidden_act == "gelu_tanh" and write_config(config)["hidden_act"] == "gelu_new"


def test_a_foreign_folder_becomes_ours(tmp_path):
    folder = hf.write(tmp_path / "theirs", hf.encoder())
    model = load(folder)
    ours = checkpoint.load(model.save_pretrained(tmp_path / "ours"))
    for name, array in numbers(model).items():
        np.testing.assert_array_equal(ours.named_weights()[name], array)
    assert ours.vocabulary == model.vocabulary and ours.config == model.config
    with pytest.raises(CheckpointError, match="holds other files|another library's model"):
        model.save_pretrained(folder)
