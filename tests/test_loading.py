"""`lbzoo.load`: what a name, a path and a repository each mean, and that none is taken for another."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import lbzoo
from lbzoo import checkpoint, folder, hub, registry
from lbzoo.errors import CheckpointError, DownloadError, LbzooError, UnknownModelError
from lbzoo.manifest import parse_manifest
from tests.test_manifest import COMMIT, GOOD


@pytest.fixture
def zoo(tiny_model, tmp_path, monkeypatch):
    """A registry with one bundled checkpoint, `tiny-1` (also `small`), in an empty current directory."""
    bundled = tmp_path / "bundled"
    place = checkpoint.save(tiny_model, bundled / "tiny-1", card={"sentiment_unit": 3, "made": "in a test"})
    values = json.loads(json.dumps(GOOD))
    values["checkpoints"][0].update(
        sources=[{"kind": "bundled"}], config=tiny_model.config.to_dict(), text=tiny_model.text
    )
    values["checkpoints"][0]["files"] = folder.manifest_files(place)
    entries = parse_manifest(json.dumps(values).encode())
    monkeypatch.setattr(registry, "entries", lambda: entries)
    monkeypatch.setattr(registry, "BUNDLED", bundled)
    monkeypatch.chdir(tmp_path)
    return place


def same(model, other):
    pairs = zip(model.named_weights().values(), other.named_weights().values())
    return all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)


@pytest.mark.parametrize("name", ["tiny-1", "small"])
def test_a_bundled_name_loads_with_its_card(zoo, tiny_model, name):
    model = lbzoo.load(name)
    assert same(model, tiny_model)
    assert (model.card["name"], model.card["revision"]) == ("tiny-1", None)
    assert model.card["sentiment_unit"] == 3  # card.json comes before the manifest,
    assert model.card["license"] == "Apache-2.0" and model.card["results"][0]["value"] == 70.5  # which adds the rest
    assert lbzoo.checkpoint_folder(name) == zoo


@pytest.mark.parametrize("form", ["path", "./", "absolute", "nested"])
def test_a_folder_loads_where_it_looks_like_a_path(zoo, tiny_model, tmp_path, form):
    shutil.copytree(zoo, "mine")
    shutil.copytree(zoo, "sub/mine")
    given = {"path": Path("mine"), "./": "./mine", "absolute": str(tmp_path / "mine"), "nested": "sub/mine"}[form]
    model = lbzoo.load(given)
    assert same(model, tiny_model) and model.card["name"] == "mine"
    assert model.card["revision"] is None and "license" not in model.card
    assert lbzoo.checkpoint_folder(given).samefile(given)


def test_a_name_never_becomes_a_folder_nor_a_folder_a_name(zoo, tiny_model):
    other = lbzoo.MLSTMLanguageModel(tiny_model.config, seed=5)
    other.save_pretrained("tiny-1")  # a folder with the name of a checkpoint
    assert same(lbzoo.load("tiny-1"), tiny_model)
    assert same(lbzoo.load("./tiny-1"), other) and same(lbzoo.load(Path("tiny-1")), other)
    other.save_pretrained("mine")
    with pytest.raises(UnknownModelError, match="write './mine'"):
        lbzoo.load("mine")
    with pytest.raises(CheckpointError, match="no checkpoint folder here"):
        lbzoo.load("./tiny-2")
    with pytest.raises(CheckpointError, match="no checkpoint folder here"):
        lbzoo.load(Path("small"))


def test_a_changed_bundled_file_is_an_error(zoo):
    with (zoo / "card.json").open("a") as file:
        file.write(" ")
    with pytest.raises(LbzooError, match=r"card\.json"):
        lbzoo.load("tiny-1")


def test_a_resealed_folder_does_not_pass_for_the_manifests(zoo, tiny_model):
    """The folder is in itself sound, but not the one that the manifest means."""
    lbzoo.MLSTMLanguageModel(tiny_model.config, seed=5).save_pretrained(zoo)
    for call in (lbzoo.load, lbzoo.checkpoint_folder):
        with pytest.raises(LbzooError, match="has changed"):
            call("tiny-1")


def test_a_load_hashes_every_file_once(zoo, monkeypatch):
    hashed = []
    measure = folder.mismatch
    monkeypatch.setattr(folder, "mismatch", lambda path, *more: hashed.append(path.name) or measure(path, *more))
    lbzoo.load("tiny-1")
    assert sorted(hashed) == ["card.json", "config.json", "model.safetensors"]


def test_random_weights_are_asked_for_by_name(zoo, tiny_model, monkeypatch):
    def never(*_, **__):
        raise AssertionError("weights=False fetches nothing")

    monkeypatch.setattr(hub, "resolve", never)
    for name in ("tiny-1", "tiny-2"):  # the second has no weights anywhere
        model = lbzoo.load(name, weights=False)
        assert model.config == registry.find(name).config and not same(model, tiny_model)
        assert "random" in model.card["description"]
    assert not same(lbzoo.load(zoo, weights=False), tiny_model)
    with pytest.raises(UnknownModelError):
        lbzoo.load("tiny-3", weights=False)


def test_a_name_that_cannot_be_loaded_raises(zoo):
    with pytest.raises(DownloadError, match="not published yet"):
        lbzoo.load("tiny-2")
    with pytest.raises(DownloadError):
        lbzoo.load("tiny-2", offline=True)


@pytest.mark.parametrize("name", ["tiny-3", "", None, 3, b"tiny-1", ["tiny-1"]])
def test_what_is_no_name_raises(zoo, name):
    with pytest.raises(UnknownModelError, match="Received"):
        lbzoo.load(name)


@pytest.mark.parametrize(
    "path",
    ["./none", "a/b/c", "/none/at all", "~/none-here", "~nobody-of-this-name/x", "..", "https://example.org/a/b"],
)
def test_what_is_no_folder_raises(zoo, path):
    with pytest.raises(CheckpointError, match="Received"):
        lbzoo.load(path)


@pytest.mark.parametrize("weights", [0, 1, None, "no"])
def test_weights_is_true_or_false(zoo, weights):
    with pytest.raises(CheckpointError, match="weights must be True or False"):
        lbzoo.load("tiny-1", weights=weights)


def test_a_repository_of_the_hub(zoo, tiny_model, monkeypatch):
    asked = []

    def resolve_repo(name, **options):
        asked.append((name, options))
        return hub.Located(checkpoint.verify(zoo), "me/repo", COMMIT)

    monkeypatch.setattr(hub, "resolve_repo", resolve_repo)
    model = lbzoo.load("me/repo@main", cache="c", offline=False, token="t")
    assert same(model, tiny_model) and (model.card["name"], model.card["revision"]) == ("me/repo", COMMIT)
    assert asked == [("me/repo@main", {"cache": "c", "offline": False, "token": "t"})]
    shutil.copytree(zoo, "me/repo")
    assert lbzoo.load("me/repo").card["revision"] is None and len(asked) == 1


def test_a_mistyped_folder_that_reads_like_a_repository(zoo):
    with pytest.raises(DownloadError, match="There is no folder 'models/mine' here") as caught:
        lbzoo.load("models/mine", offline=True)
    assert caught.value.code == "offline"


def test_every_listed_checkpoint_can_be_built():
    for name in lbzoo.list_models():
        entry = lbzoo.info(name)
        if sum(map(math.prod, entry.config.shapes().values())) < 30_000_000:
            assert lbzoo.load(name, weights=False).config == entry.config


@pytest.mark.slow
def test_the_largest_listed_checkpoint_can_be_built():
    from lbzoo.models.mlstm import MLSTMLanguageModel

    config = lbzoo.info("mlstm-4096-amazon").config
    model = MLSTMLanguageModel(config, seed=None)
    assert (
        sum(np.prod(variable.shape) for variable in model.variables) == 86_319_360
    )  # 345,278,640 bytes less 15 headers
