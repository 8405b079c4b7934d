"""`lbzoo.load("user/repo")` of a Hugging Face BERT, and manifest entries that are one: over HTTP from a fake Hub."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest

import lbzoo
from lbzoo import registry
from lbzoo.errors import CheckpointError, DownloadError
from lbzoo.manifest import BundledSource, parse_manifest
from tests import hf_folder as hf
from tests.fake_hub import COMMIT, running
from tests.hub_bench import FAST

REPO = "someone/tiny-bert"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Hub with one BERT, as its author uploaded it, beside files that lbzoo has no use for."""
    folder = hf.write(tmp_path / "theirs", hf.encoder())
    for name in ("LBZOO_OFFLINE", "HF_HUB_OFFLINE", "LBZOO_CACHE"):
        monkeypatch.delenv(name, raising=False)
    with running() as server:
        for name, value in {**FAST, "HF_ENDPOINT": server.url}.items():
            monkeypatch.setenv(name, value)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        others = {"README.md": b"---\n", "pytorch_model.bin": b"pickle", "tokenizer.json": b"{}"}
        server.add_repo(REPO, {**files, **others})
        yield server


def asked_for(server):
    return {seen.path.rsplit("/", 1)[-1] for seen in server.log if "/resolve/" in seen.path}


def test_a_repository_is_loaded_and_cached(server, tmp_path, run):
    model = lbzoo.load(REPO, cache=tmp_path / "cache")
    assert isinstance(model, lbzoo.BertEncoder) and len(model.vocabulary) == 9
    assert (model.card["name"], model.card["revision"]) == (REPO, COMMIT)
    wanted = hf.encoder()["bert.pooler.dense.weight"].T
    np.testing.assert_array_equal(model.named_weights()["pooler/kernel"], wanted)
    assert asked_for(server) == {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"}
    server.log.clear()
    again = lbzoo.load(f"{REPO}@{COMMIT}", cache=tmp_path / "cache")
    offline = lbzoo.load(REPO, cache=tmp_path / "cache", offline=True)
    for other in (again, offline):
        np.testing.assert_array_equal(other.named_weights()["pooler/kernel"], wanted)
    status, out, _ = run("verify", "--all", "--offline", "--cache", tmp_path / "cache")
    assert status == 0 and f"{REPO}@{COMMIT}: ok" in out
    assert not server.log


def test_a_spoilt_file_is_fetched_again(server, tmp_path):
    lbzoo.load(REPO, cache=tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("snapshots/*/model.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.resolve().write_bytes(bytes(data))
    model = lbzoo.load(f"{REPO}@{COMMIT}", cache=tmp_path / "cache")
    np.testing.assert_array_equal(model.named_weights()["pooler/kernel"], hf.encoder()["bert.pooler.dense.weight"].T)
    assert list((tmp_path / "cache").rglob("*.corrupt"))


@pytest.mark.parametrize("kept", [("vocab.txt",), ("tokenizer.json", "tokenizer_config.json")])
def test_the_tokenizer_may_come_in_one_file_or_the_other(server, tmp_path, kept):
    files = server.repos[REPO]["commits"][COMMIT]
    pieces = {piece: number for number, piece in enumerate(hf.PIECES)}
    files["tokenizer.json"] = json.dumps({"model": {"type": "WordPiece", "vocab": pieces}}).encode()
    for name in {"vocab.txt", "tokenizer.json", "tokenizer_config.json"} - set(kept):
        del files[name]
    assert lbzoo.load(REPO, cache=tmp_path / "cache").vocabulary.pieces == tuple(hf.PIECES)
    assert asked_for(server) == {"config.json", "model.safetensors", *kept}


def test_what_cannot_be_loaded_is_told(server, tmp_path):
    files = server.repos[REPO]["commits"][COMMIT]
    weights = files.pop("model.safetensors")
    with pytest.raises(CheckpointError, match=r"BERT without model\.safetensors.*pytorch_model\.bin"):
        lbzoo.load(REPO, cache=tmp_path / "1")
    files["model.safetensors"] = weights
    files["config.json"] = json.dumps({**hf.CONFIG, "model_type": "gpt2"}).encode()
    with pytest.raises(CheckpointError, match="Transformers checkpoint .model_type 'gpt2'"):
        lbzoo.load(REPO, cache=tmp_path / "2")
    files["config.json"] = json.dumps({**hf.CONFIG, "is_decoder": True}).encode()
    with pytest.raises(CheckpointError, match="is_decoder must be False"):
        lbzoo.load(REPO, cache=tmp_path / "3")
    with pytest.raises(DownloadError, match="offline"):
        lbzoo.load(REPO, cache=tmp_path / "4", offline=True)


def entry(server, **changes):
    """The repository as an entry of the manifest; only the weights' hash is known."""
    files = server.repos[REPO]["commits"][COMMIT]
    weights = files["model.safetensors"]
    known = {"size": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
    config = {
        "vocab_size": 9,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 10,
    }
    values = {
        "name": "bert-tiny",
        "description": "a small one",
        "architecture": "bert",
        "config": config,
        "text": "uncased",
        "sources": [{"kind": "hub", "repo": REPO, "revision": COMMIT, "published": True}],
        "files": {"config.json": {}, "model.safetensors": known, "vocab.txt": {}, "tokenizer_config.json": {}},
        "license": "Apache-2.0",
        "training_data": "none",
        "results": [],
        "status": "untested here",
        "untested": ["all of it"],
        **changes,
    }
    return parse_manifest(json.dumps({"schema": 1, "checkpoints": [values]}).encode())


def test_an_entry_of_the_manifest_is_read_from_their_files(server, tmp_path, monkeypatch, run):
    monkeypatch.setattr(registry, "entries", lambda: entry(server))
    model = lbzoo.load("bert-tiny", cache=tmp_path / "cache")
    assert model.card["name"] == "bert-tiny" and model.card["license"] == "Apache-2.0"
    np.testing.assert_array_equal(model.named_weights()["pooler/kernel"], hf.encoder()["bert.pooler.dense.weight"].T)
    server.log.clear()
    status, out, _ = run("verify", "bert-tiny", "--cache", tmp_path / "cache", "--offline")
    assert status == 0 and "model.safetensors" in out and "39 tensors, F32" in out and not server.log
    assert lbzoo.load("bert-tiny", weights=False).config == model.config


def test_other_weights_than_the_manifests_are_refused(server, tmp_path, monkeypatch):
    right = entry(server)
    data = server.repos[REPO]["commits"][COMMIT]["model.safetensors"]
    server.repos[REPO]["commits"][COMMIT]["model.safetensors"] = data[:-1] + bytes([data[-1] ^ 1])
    monkeypatch.setattr(registry, "entries", lambda: right)
    with pytest.raises(DownloadError, match="The repository was changed"):
        lbzoo.load("bert-tiny", cache=tmp_path / "cache")


def test_an_entry_says_what_the_files_hold(server, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "entries", lambda: entry(server, text="cased"))
    with pytest.raises(CheckpointError, match="is not what the manifest says"):
        lbzoo.load("bert-tiny", cache=tmp_path / "cache")


def test_a_folder_is_verified_too(server, tmp_path, run):
    status, out, _ = run("verify", tmp_path / "theirs")
    assert status == 0 and "vocab.txt" in out and "39 tensors, F32" in out
    status, out, _ = run("info", tmp_path / "theirs")
    assert status == 0 and "bert" in out


def test_the_public_berts_are_pinned_and_read_from_the_hubs_own_files():
    berts = (entry for entry in registry.entries() if entry.architecture == "bert")
    found = {entry.name: entry for entry in berts if BundledSource() not in entry.sources}
    hub = {name: (entry.sources[-1].repo, entry.sources[-1].revision[:8]) for name, entry in found.items()}
    assert hub.items() >= {
        ("bert-base-uncased", ("google-bert/bert-base-uncased", "86b5e093")),
        ("bert-minilm-l6", ("sentence-transformers/all-MiniLM-L6-v2", "1110a243")),
        ("bert-base-cased", ("google-bert/bert-base-cased", "cd5ef92a")),
        ("bert-large-uncased", ("google-bert/bert-large-uncased", "6da4b6a2")),
    }
    for name in ("bert-base-uncased", "bert-minilm-l6"):
        (weights,) = (file for file in found[name].files if file.path == "model.safetensors")
        numbers = sum(math.prod(shape) for shape in found[name].config.shapes().values())
        assert 0 < weights.size - 4 * numbers < 30_000, "what is no number is the header"
