"""Publishing a BERT: a tiny run becomes a bundled checkpoint, whose figures the stated command prints again."""

import json
import re
from pathlib import Path

import pytest

import lbzoo
from lbzoo.manifest import BundledSource, read_manifest
from training import bert_evaluate, pretrain_bert, publish, publish_bert, sample_reviews
from training.prepare_bert import prepare

SMALL = ("model.num_hidden_layers=1", "model.hidden_size=16", "model.intermediate_size=32", "model.vocab_size=300")
STEPS = ("first.steps=4", "second.steps=0", "save_every=4", "evaluate_every=4")
TRAINING = {"description": "a tiny BERT", "license": "Apache-2.0", "training_data": "made-up reviews", "notes": []}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What `training.pretrain_bert --export` writes."""
    folder = tmp_path_factory.mktemp("publish")
    settings = [part for setting in (*SMALL, *STEPS) for part in ("--set", setting)]
    given = ["--recipe", "tiny", *settings, "--run", str(folder / "run"), "--export", str(folder / "exported")]
    assert pretrain_bert.main(given) == 0
    return folder / "exported"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout with an empty manifest, and made-up reviews in the place of Amazon's."""
    (tmp_path / "checkpoints_manifest.json").write_text('{"schema": 1, "checkpoints": []}')
    seeds = {"valid": 1, "test": 2}
    monkeypatch.setattr(bert_evaluate, "amazon_text", lambda data, split: sample_reviews.documents(800, seeds[split]))
    return tmp_path


def test_a_trained_bert_becomes_a_bundled_checkpoint_with_its_figures(exported, root, capsys):
    for _ in range(2):  # again: in place of the first
        card = publish_bert.publish(exported, "bert-tiny", Path("DATA"), TRAINING, root)
    (entry,) = read_manifest(root / "checkpoints_manifest.json")
    folder = root / "lbzoo" / "bundled" / "bert-tiny"
    assert entry.sources == (BundledSource(),) and entry.architecture == "bert" and entry.text == "reviews-uncased"
    assert {file.path for file in entry.files} == {path.name for path in folder.iterdir()} >= {"vocab.txt"}
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert json.loads((folder / "card.json").read_text()) == card == {**TRAINING, "results": card["results"]}
    stated = {(r.split, r.metric): r.value for r in entry.results}
    assert len(stated) == len(card["results"]) == 6 and {r.dataset for r in entry.results} == {"amazon"}

    capsys.readouterr()
    assert bert_evaluate.main(["--model", str(folder), "--data", "DATA"]) == 0
    printed = re.findall(r"^amazon (\w+): (.*)$", capsys.readouterr().out, re.M)
    assert [split for split, _ in printed] == ["valid", "test"]
    for split, line in printed:
        figures = {name: float(value) for name, value in (part.split() for part in line.split(", "))}
        for name, (metric, factor, _) in publish_bert.METRICS.items():
            assert stated[split, metric] == pytest.approx(factor * figures[name], abs=0.011)
    assert stated["test", "masked-lm loss"] != stated["valid", "masked-lm loss"]

    (guesses,) = lbzoo.MaskFiller(folder).fill(["This camera is really [MASK]."])[0]
    assert len(guesses) == 5


def test_another_model_or_another_vocabulary_is_one_line(exported, root, tiny_checkpoint, tmp_path, capsys):
    tokens = tmp_path / "tokens"
    prepare(sample_reviews.write(tmp_path / "text"), tokens, size=300, cased=True)
    for arguments, words in (
        (["--model", str(tiny_checkpoint), "--data", "DATA"], "both heads of pre-training"),
        (["--model", str(exported), "--shards", str(tokens), "--split", "train"], "vocabulary and the text policy"),
    ):
        assert bert_evaluate.main(arguments) == 1
        assert re.match(f"bert_evaluate: error: .*{words}", capsys.readouterr().err.splitlines()[-1])


@pytest.mark.parametrize("module", [publish, publish_bert])
def test_what_cannot_be_published_is_one_line(module, tiny_checkpoint, tmp_path, capsys):
    cards = {name: tmp_path / f"{name}.json" for name in ("whole", "part", "broken", "list")}
    for path, text in zip(cards.values(), (json.dumps(TRAINING), '{"notes": []}', "{", "[]")):
        path.write_text(text)
    usual = {"folder": tmp_path / "none", "--name": "mine", "--data": tmp_path, "--training": cards["whole"]}
    for change, words in (
        ({}, "no checkpoint folder here"),
        ({"folder": tmp_path}, "config.json cannot be read"),
        ({"folder": tiny_checkpoint}, "Received: .*MLSTM"),
        ({"--name": "../mine"}, "a name is lower-case words.*Received: --name '../mine'"),
        ({"--data": tmp_path / "none"}, "--data names the folder.*none', no folder"),
        ({"--training": tmp_path / "none.json"}, "none.json"),
        ({"--training": cards["part"]}, "Missing: description, license, training_data"),
        ({"--training": cards["broken"]}, "broken.json cannot be parsed: it is not JSON"),
        ({"--training": cards["list"]}, "must be a JSON object"),
    ):
        folder, *options = {**usual, **change}.items()
        assert module.main([str(folder[1]), *(str(word) for pair in options for word in pair)]) == 1
        line = capsys.readouterr().err.splitlines()[-1]
        assert re.match(f"publish: error: .*{words}", line)
