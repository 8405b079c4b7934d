"""Names to entries: listing, finding, suggestions, and what `lbzoo info` prints."""

from __future__ import annotations

import json

import pytest

from lbzoo import registry
from lbzoo.errors import LbzooError, ManifestError, UnknownModelError
from lbzoo.manifest import parse_manifest
from tests.test_manifest import COMMIT, DIGEST, GOOD, RAW


@pytest.fixture
def zoo(monkeypatch):
    """A registry of four checkpoints."""
    values = json.loads(RAW)
    for name in ("mlstm-512-x", "mlstm-4096-x"):
        values["checkpoints"].append({**values["checkpoints"][1], "name": name})
    entries = parse_manifest(json.dumps(values).encode())
    monkeypatch.setattr(registry, "entries", lambda: entries)
    return entries


def test_names_are_listed_in_natural_order(zoo):
    assert registry.list_models() == ["mlstm-512-x", "mlstm-4096-x", "tiny-1", "tiny-2"]
    assert registry.list_models("MLSTM-*") == ["mlstm-512-x", "mlstm-4096-x"]
    assert registry.list_models("small") == ["tiny-1"]
    assert registry.list_models("*-[13]") == ["tiny-1"]
    assert registry.list_models("") == registry.list_models("tiny") == []


@pytest.mark.parametrize("pattern", [None, 3, b"tiny-1", ["tiny-1"]])
def test_a_pattern_is_a_string(zoo, pattern):
    with pytest.raises(LbzooError, match="Received"):
        registry.list_models(pattern)


def test_an_alias_finds_its_entry(zoo):
    assert registry.find("small") is registry.find("tiny-1") is registry.info("tiny-1")


@pytest.mark.parametrize(
    "name, hint",
    [
        ("mlstm-4096-xx", "Did you mean mlstm-4096-x"),
        ("TINY-1", "Did you mean tiny-1"),
        (" tiny-1 ", "Did you mean tiny-1"),
        ("smal", "Did you mean tiny-1?"),
        ("bert-base-uncased", "lbzoo list"),
        ("", "lbzoo list"),
        ("x" * 10_000, "lbzoo list"),
        (None, "NoneType"),
        (3, "int"),
        (["tiny-1"], "list"),
        (b"tiny-1", "bytes"),
    ],
)
def test_an_unknown_name_says_what_was_received_and_what_is_close(zoo, name, hint):
    with pytest.raises(UnknownModelError) as caught:
        registry.find(name)
    text = str(caught.value)
    assert hint in text and "Received:" in text and "\n" not in text and len(text) < 400
    if hint == "lbzoo list":
        assert "Did you mean" not in text


def test_info_shows_sources_hashes_licence_unit_and_results(zoo):
    text = str(registry.info("tiny-1"))
    for part in ("also small", "Apache-2.0", "bundled with lbzoo", f"me/tiny, at commit {COMMIT}", "git blob", DIGEST):
        assert part in text
    assert "7 of the cell state; polarity -1 (larger is negative)" in text
    assert "sst test, accuracy 70.5  (ours: lbzoo evaluate)" in text
    assert "imdb test, bpc 1  (published: a paper)" in text
    assert "untested here" not in text
    assert "untested here   all of it" in str(registry.info("tiny-2"))


def test_info_of_the_shipped_4096_unit_model():
    text = str(registry.info("sentiment-neuron"))
    for part in (
        "not published yet",
        "openai/generating-reviews-discovering-sentiment",
        "2388",
        "published:",
        "untested here",
    ):
        assert part in text
    assert "9a78f2c8f5447d0eb2c93d6f8f2632483441a072" in text and "(ours:" not in text
    with pytest.raises(UnknownModelError, match="Did you mean mlstm-4096-amazon"):
        registry.find("mlstm-4096-amazn")


def test_the_manifest_is_read_once():
    assert registry.entries() is registry.entries()


def test_the_packages_own_manifest_comes_first(monkeypatch, tmp_path):
    package = tmp_path / "lbzoo"
    package.mkdir()
    monkeypatch.setattr(registry, "PACKAGE", package)
    with pytest.raises(ManifestError, match="missing"):
        registry.manifest_path()
    (tmp_path / registry.MANIFEST).write_bytes(RAW)
    assert registry.manifest_path().parent == tmp_path
    (package / registry.MANIFEST).write_bytes(RAW)
    assert registry.manifest_path().parent == package


def test_bundled_folder_only_where_the_entry_says_so(zoo):
    assert registry.bundled_folder(registry.find("tiny-1")) == registry.BUNDLED / "tiny-1"
    assert registry.bundled_folder(registry.find("tiny-2")) is None


def test_the_good_manifest_of_these_tests_is_left_alone():
    assert parse_manifest(json.dumps(GOOD).encode()) == parse_manifest(RAW)
