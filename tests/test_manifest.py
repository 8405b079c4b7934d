"""The manifest: what ships is sound, and every way to break one is a single clear error that names the field."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo import registry
from lbzoo.errors import LbzooError, ManifestError
from lbzoo.manifest import BundledSource, HubSource, OpenAIRelease, parse_manifest, read_manifest

COMMIT, DIGEST = "0123456789abcdef" * 2 + "01234567", "0123456789abcdef" * 4


def file(size=1, digest=DIGEST):
    return {"size": size, "sha256": digest}


GOOD = {
    "schema": 1,
    "checkpoints": [
        {
            "name": "tiny-1",
            "aliases": ["small"],
            "description": "a small one",
            "architecture": "mlstm",
            "config": {"units": 8},
            "text": "reviews",
            "sources": [
                {"kind": "bundled"},
                {"kind": "hub", "repo": "me/tiny", "revision": COMMIT, "published": True},
                {
                    "kind": "openai-release",
                    "repo": "them/release",
                    "commit": COMMIT,
                    "license": "MIT",
                    "files": [{"path": "model/0.npy", "sha1": COMMIT, "size": 9, "sha256": DIGEST}],
                },
            ],
            "files": {"config.json": file(), "model.safetensors": file()},
            "license": "Apache-2.0",
            "training_data": "reviews",
            "results": [
                {
                    "dataset": "sst",
                    "split": "test",
                    "metric": "accuracy",
                    "value": 70.5,
                    "source": "ours",
                    "command": "lbzoo evaluate",
                },
                {
                    "dataset": "imdb",
                    "split": "test",
                    "metric": "bpc",
                    "value": 1,
                    "source": "published",
                    "reference": "a paper",
                },
            ],
            "sentiment_unit": 7,
            "polarity": -1,
            "status": "tested",
        },
        {
            "name": "tiny-2",
            "description": "another",
            "architecture": "mlstm",
            "config": {"units": 8},
            "text": "openai",
            "sources": [{"kind": "hub", "repo": "me/tiny2", "published": False}],
            "files": {},
            "license": "MIT",
            "training_data": "reviews",
            "results": [],
            "status": "untested here",
            "untested": ["all of it"],
            "notes": ["one"],
        },
    ],
}
GONE = object()
FIRST, SECOND = ("checkpoints", 0), ("checkpoints", 1)
HUB, RELEASE = (*FIRST, "sources", 1), (*FIRST, "sources", 2)
BLOB, FILES = (*RELEASE, "files", 0), (*FIRST, "files")
OURS, THEIRS = (*FIRST, "results", 0), (*FIRST, "results", 1)


def changed(*changes):
    """GOOD with values put (or, with GONE, removed) at paths."""
    values = copy.deepcopy(GOOD)
    for path, value in changes:
        place = values
        for key in path[:-1]:
            place = place[key]
        if value is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return values


def named(path):
    """A file of the first entry under a hostile name."""
    return ((*FILES, path), file())


def bytes_of(values) -> bytes:
    return values if isinstance(values, bytes) else json.dumps(values).encode()


RAW = json.dumps(GOOD).encode()
HOSTILE = {
    # the document
    "empty": (b"", "cannot be parsed"),
    "not json": (b"name: tiny", "not JSON"),
    "cut short": (RAW[:-2], "not JSON"),
    "trailing garbage": (RAW + b"{}", "not JSON"),
    "byte-order mark": (b"\xef\xbb\xbf" + RAW, "byte-order mark"),
    "utf-16": (json.dumps(GOOD).encode("utf-16"), "not UTF-8"),
    "latin-1": (RAW.replace(b"a small one", b"caf\xe9"), "not UTF-8"),
    "nan": (RAW.replace(b"70.5", b"NaN"), "NaN"),
    "infinity": (RAW.replace(b"70.5", b"-Infinity"), "Infinity"),
    "number beyond float": (RAW.replace(b"70.5", b"1e999"), "too large"),
    "duplicate key": (RAW.replace(b'"schema": 1', b'"schema": 1, "schema": 1'), "'schema' appears twice"),
    "duplicate file": (RAW.replace(b'"model.safetensors"', b'"config.json"'), "'config.json' appears twice"),
    "deep nesting": (b"[" * 100_000, "nested too deeply"),
    "deep nesting inside": (RAW.replace(b"70.5", b"[" * 100_000), "nested too deeply"),
    "huge": (b" " * (5 << 20), "at most"),
    "a list": ([], "must be an object"),
    "null": (b"null", "must be an object"),
    "no schema": (changed((("schema",), GONE)), "schema must be 1"),
    "later schema": (changed((("schema",), 2)), "schema must be 1. Received: 2"),
    "schema as string": (changed((("schema",), "1")), "schema must be 1"),
    "schema as float": (changed((("schema",), 1.0)), "schema must be 1"),
    "schema as bool": (changed((("schema",), True)), "schema must be 1"),
    "unknown key at the top": (changed((("comment",), "hi")), "comment is not a known field"),
    "no checkpoints": (changed((("checkpoints",), GONE)), "checkpoints is missing"),
    "checkpoints as object": (changed((("checkpoints",), {})), "checkpoints must be a list"),
    "entry as string": (changed((FIRST, "tiny")), r"checkpoints\[0\] must be an object"),
    # names
    "no name": (changed(((*FIRST, "name"), GONE)), r"checkpoints\[0\]\.name is missing"),
    "empty name": (changed(((*FIRST, "name"), "")), r"\.name must be"),
    "name with slash": (changed(((*FIRST, "name"), "a/b")), r"\.name must be"),
    "name is dots": (changed(((*FIRST, "name"), "..")), r"\.name must be"),
    "name with space": (changed(((*FIRST, "name"), "tiny 1")), r"\.name must be"),
    "name with newline": (changed(((*FIRST, "name"), "tiny-1\n")), r"\.name must be"),
    "upper-case name": (changed(((*FIRST, "name"), "Tiny-1")), r"\.name must be"),
    "cyrillic name": (changed(((*FIRST, "name"), "tin\u0443-1")), r"\.name must be"),
    "device name": (changed(((*FIRST, "name"), "con")), "every file system"),
    "endless name": (changed(((*FIRST, "name"), "a" * 300)), "every file system"),
    "number as name": (changed(((*FIRST, "name"), 7)), r"\.name must be"),
    "duplicate name": (changed(((*SECOND, "name"), "tiny-1")), r"checkpoints\[1\] must not take a name"),
    "alias twice": (changed(((*FIRST, "aliases"), ["a", "a"])), "must not take a name or alias"),
    "alias of two": (changed(((*SECOND, "aliases"), ["small"])), "must not take a name or alias"),
    "alias is a name": (changed(((*FIRST, "aliases"), ["tiny-2"])), "must not take a name or alias"),
    "alias is its own name": (changed(((*FIRST, "aliases"), ["tiny-1"])), "must not take a name or alias"),
    "alias as path": (changed(((*FIRST, "aliases"), ["../x"])), r"aliases\[0\] must be"),
    "aliases as string": (changed(((*FIRST, "aliases"), "small")), "aliases must be a list"),
    # plain fields
    "unknown key": (changed(((*FIRST, "licence"), "MIT")), "licence is not a known field"),
    "code to run": (changed(((*FIRST, "class"), "os.system")), "class is not a known field"),
    "no licence": (changed(((*FIRST, "license"), GONE)), "license is missing"),
    "empty licence": (changed(((*FIRST, "license"), " ")), "license must be"),
    "no training data": (changed(((*FIRST, "training_data"), GONE)), "training_data is missing"),
    "escape codes": (changed(((*FIRST, "description"), "\x1b[2Jgone")), "description must be"),
    "two lines": (changed(((*FIRST, "description"), "a\nb")), "description must be"),
    "endless text": (changed(((*FIRST, "description"), "a" * 5000)), "description must be"),
    "unknown architecture": (changed(((*FIRST, "architecture"), "os.system")), "architecture must be mlstm"),
    "architecture as list": (changed(((*FIRST, "architecture"), ["mlstm"])), "architecture must be"),
    "unknown text policy": (changed(((*FIRST, "text"), "ascii")), "text must be openai or reviews"),
    "unknown status": (changed(((*FIRST, "status"), "fine")), "status must be"),
    "untested without saying what": (changed(((*FIRST, "status"), "untested here")), "untested must say"),
    "tested with untested parts": (changed(((*FIRST, "untested"), ["x"])), "untested must say"),
    "notes of numbers": (changed(((*SECOND, "notes"), [1])), r"notes\[0\] must be"),
    # config
    "config as string": (changed(((*FIRST, "config"), "units=8")), "config"),
    "config without units": (changed(((*FIRST, "config"), {})), "needs units"),
    "config with unknown key": (changed(((*FIRST, "config", "layers"), 2)), "layers"),
    "config with zero units": (changed(((*FIRST, "config", "units"), 0)), "units must be a positive integer"),
    "config with float units": (changed(((*FIRST, "config", "units"), 8.0)), "units must be a positive integer"),
    "unit outside the model": (
        changed(((*FIRST, "sentiment_unit"), 8)),
        "sentiment_unit must be an integer from 0 to 7",
    ),
    "negative unit": (changed(((*FIRST, "sentiment_unit"), -1)), "sentiment_unit must be"),
    "unit as bool": (changed(((*FIRST, "sentiment_unit"), True)), "sentiment_unit must be"),
    "polarity zero": (changed(((*FIRST, "polarity"), 0)), "polarity must be 1 or -1"),
    "polarity as bool": (changed(((*FIRST, "polarity"), True)), "polarity must be 1 or -1"),
    "unit without polarity": (changed(((*FIRST, "polarity"), GONE)), "polarity must stand together"),
    "polarity without unit": (changed(((*FIRST, "sentiment_unit"), None)), "polarity must stand together"),
    # files
    "files as list": (changed((FILES, [])), "files must be an object"),
    "bundled without files": (changed((FILES, {})), "must name config.json and model.safetensors"),
    "weights missing": (changed(((*FILES, "model.safetensors"), GONE)), "must name config.json and model.safetensors"),
    "absolute path": (changed(named("/etc/passwd.json")), "relative path"),
    "dot dot": (changed(named("../config.txt")), "relative path"),
    "dot dot inside": (changed(named("a/../../b.json")), "relative path"),
    "dot": (changed(named("./a.json")), "relative path"),
    "double slash": (changed(named("a//b.json")), "relative path"),
    "backslash": (changed(named("..\\a.json")), "relative path"),
    "drive letter": (changed(named("C:/a.json")), "relative path"),
    "drive and backslash": (changed(named("C:a.json")), "relative path"),
    "share": (changed(named("//server/a.json")), "relative path"),
    "home": (changed(named("~/a.json")), "relative path"),
    "hidden": (changed(named(".a.json")), "relative path"),
    "address": (changed(named("https://example.org/a.json")), "relative path"),
    "NUL in path": (changed(named("a\0.json")), "relative path"),
    "newline in path": (changed(named("a.json\n")), "relative path"),
    "space in path": (changed(named("a b.json")), "relative path"),
    "percent escapes": (changed(named("%2e%2e/a.json")), "relative path"),
    "full-width dots": (changed(named("\uff0e\uff0e/a.json")), "relative path"),
    "device": (changed(named("nul.json")), "relative path"),
    "device in a folder": (changed(named("a/COM1.json")), "relative path"),
    "trailing dot": (changed(named("a.json.")), "relative path"),
    "empty path": (changed(named("")), "non-empty string"),
    "endless path": (changed(named("a" * 300 + ".json")), "at most 200"),
    "same path in other case": (changed(named("Config.json")), "must not repeat config.json"),
    "no suffix": (changed(named("weights")), "must end in one of"),
    "suffix only": (changed(named("a/.json")), "relative path"),
    **{
        f"suffix {suffix}": (changed(named("model" + suffix)), "must end in one of")
        for suffix in (".pkl", ".h5", ".keras", ".zip", ".npy", ".py", ".bin", ".JSON", ".json.exe", ".tar.gz")
    },
    "file as number": (changed(((*FILES, "config.json"), 5)), r"\['config\.json'\] must be an object"),
    "file with unknown key": (changed(((*FILES, "config.json", "md5"), "x")), "md5 is not a known field"),
    "no size": (changed(((*FILES, "config.json", "size"), GONE)), "size is missing"),
    **{
        f"size {size!r}": (changed(((*FILES, "config.json", "size"), size)), r"size must be an integer from 1 to")
        for size in (0, -1, 1.0, True, "1", 1 << 40, 10**400, [1])
    },
    "no hash": (changed(((*FILES, "config.json", "sha256"), GONE)), "sha256 is missing"),
    "null hash of a bundled file": (changed(((*FILES, "config.json", "sha256"), None)), "64 lower-case hex"),
    **{
        f"hash {digest!r:.20}": (changed(((*FILES, "config.json", "sha256"), digest)), "64 lower-case hex digits")
        for digest in (DIGEST[:63], DIGEST + "0", DIGEST.upper(), "g" * 64, COMMIT, "", DIGEST + "\n", " " + DIGEST, 7)
    },
    "arabic digits in hash": (changed(((*FILES, "config.json", "sha256"), "\u0660" * 64)), "64 lower-case hex digits"),
    # sources
    "no sources": (changed(((*FIRST, "sources"), GONE)), "sources is missing"),
    "empty sources": (changed(((*FIRST, "sources"), [])), "at least one source"),
    "source twice": (changed(((*FIRST, "sources", 1), {"kind": "bundled"})), "must not repeat a source"),
    "source as string": (changed((HUB, "hub")), r"sources\[1\] must be an object"),
    "unknown kind": (changed(((*HUB, "kind"), "torrent")), "kind must be bundled or hub or openai-release"),
    "no kind": (changed(((*HUB, "kind"), GONE)), "kind is missing"),
    "unknown key in source": (changed(((*HUB, "url"), "https://example.org")), "url is not a known field"),
    "bundled with a path": (changed(((*FIRST, "sources", 0, "path"), "/etc")), "path is not a known field"),
    "repo as address": (changed(((*HUB, "repo"), "https://example.org/a")), "repo must be owner/name"),
    "repo without owner": (changed(((*HUB, "repo"), "tiny")), "repo must be owner/name"),
    "repo climbing": (changed(((*HUB, "repo"), "../tiny")), "repo must be owner/name"),
    "repo with three parts": (changed(((*HUB, "repo"), "a/b/c")), "repo must be owner/name"),
    "repo with query": (changed(((*HUB, "repo"), "a/b?c")), "repo must be owner/name"),
    "branch": (changed(((*HUB, "revision"), "main")), "revision must be 40 lower-case hex digits"),
    "short commit": (changed(((*HUB, "revision"), COMMIT[:7])), "revision must be 40"),
    "upper-case commit": (changed(((*HUB, "revision"), COMMIT.upper())), "revision must be 40"),
    "published without commit": (changed(((*HUB, "revision"), GONE)), "revision is missing"),
    "published with null commit": (changed(((*HUB, "revision"), None)), "revision must be 40"),
    "published as string": (changed(((*HUB, "published"), "yes")), "published must be True or False"),
    "published as number": (changed(((*HUB, "published"), 1)), "published must be True or False"),
    "release without files": (changed(((*RELEASE, "files"), [])), "at least one file"),
    "release files as object": (changed(((*RELEASE, "files"), {})), "files must be a list"),
    "release with a branch": (changed(((*RELEASE, "commit"), "master")), "commit must be 40"),
    "release without licence": (changed(((*RELEASE, "license"), GONE)), "license is missing"),
    "release file without blob hash": (changed(((*BLOB, "sha1"), GONE)), "sha1 is missing"),
    "release file with short blob hash": (changed(((*BLOB, "sha1"), COMMIT[1:])), "sha1 must be 40"),
    "release file with bad sha256": (changed(((*BLOB, "sha256"), "x")), "sha256 must be 64"),
    "release file climbing": (changed(((*BLOB, "path"), "../0.npy")), "relative path"),
    "release file pickled": (changed(((*BLOB, "path"), "model/0.pkl")), "must end in one of .npy"),
    "release file of no type": (changed(((*BLOB, "path"), 0)), "non-empty string"),
    "release file with unknown key": (changed(((*BLOB, "url"), "x")), "url is not a known field"),
    "release file twice": (
        changed(((*RELEASE, "files"), [GOOD["checkpoints"][0]["sources"][2]["files"][0]] * 2)),
        "must not repeat",
    ),
    "hub file without names": (
        changed(((*SECOND, "sources", 0), {"kind": "hub", "repo": "a/b", "revision": COMMIT, "published": True})),
        "must name config.json",
    ),
    # results
    "results as object": (changed(((*FIRST, "results"), {})), "results must be a list"),
    "result as number": (changed((OURS, 70)), r"results\[0\] must be an object"),
    "ours without command": (changed(((*OURS, "command"), GONE)), "command is missing"),
    "published without reference": (changed(((*THEIRS, "reference"), GONE)), "reference is missing"),
    "published with command": (changed(((*THEIRS, "command"), "x")), "command is not a known field"),
    "unknown origin": (changed(((*OURS, "source"), "rumour")), "source must be ours or published"),
    "unknown metric": (changed(((*OURS, "metric"), "vibes")), "metric must be accuracy"),
    "value as string": (changed(((*OURS, "value"), "70.5")), "value must be a number from 0 to 100"),
    "value as bool": (changed(((*OURS, "value"), True)), "value must be a number"),
    "value beyond": (changed(((*OURS, "value"), 101)), "value must be a number from 0 to 100"),
    "value below": (changed(((*THEIRS, "value"), -0.1)), "value must be a number from 0 to 8"),
    "no split": (changed(((*OURS, "split"), GONE)), "split is missing"),
}


@pytest.mark.parametrize("values, message", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest_is_one_clear_error(values, message):
    with pytest.raises(ManifestError, match=message) as caught:
        parse_manifest(bytes_of(values), where="m.json")
    text = str(caught.value)
    assert text.startswith("m.json") and "Received:" in text and "\n" not in text and len(text) < 500


def test_the_table_of_hostile_manifests_has_at_least_fifty():
    assert len(HOSTILE) >= 50


def test_a_good_manifest_becomes_frozen_entries():
    first, second = parse_manifest(RAW)
    assert (first.name, first.aliases, first.config.units, first.polarity) == ("tiny-1", ("small",), 8, -1)
    assert first.sources[:2] == (BundledSource(), HubSource("me/tiny", COMMIT, True))
    assert isinstance(first.sources[2], OpenAIRelease) and first.size == 2
    assert (second.sources[0].revision, second.files, second.size) == (None, (), None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.name = "other"


def test_a_hub_file_may_wait_for_its_hash():
    values = changed(((*FIRST, "sources"), [GOOD["checkpoints"][0]["sources"][1]]), ((*FILES, "config.json"), {}))
    assert parse_manifest(bytes_of(values))[0].files[0].sha256 is None


def test_entries_go_back_to_the_manifests_own_shape():
    again = {"schema": 1, "checkpoints": [entry.to_dict() for entry in parse_manifest(RAW)]}
    for entry in again["checkpoints"]:
        for result in entry["results"]:
            result.pop("reference" if result["source"] == "ours" else "command")
    assert parse_manifest(bytes_of(again)) == parse_manifest(RAW)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5), st.data()
)
def test_any_value_anywhere_is_accepted_or_refused_clearly(value, data):
    values = copy.deepcopy(GOOD)
    place = values
    while isinstance(place, (dict, list)) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key, parent = data.draw(st.sampled_from(keys)), place
        place = parent[key]
        if data.draw(st.booleans()):
            break
    parent[key] = value
    try:
        parse_manifest(bytes_of(values))
    except LbzooError as error:
        assert "Received" in str(error)


def test_a_manifest_that_is_not_there(tmp_path):
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(tmp_path / "none.json")
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(tmp_path)


def test_the_manifest_that_ships_is_sound_and_pins_openais_release():
    entry = {entry.name: entry for entry in read_manifest(registry.manifest_path())}["mlstm-4096-amazon"]
    hub, release = entry.sources
    assert not hub.published and hub.revision is None
    assert release.commit == "0032e4b87903713ad4242599f5dda2eb7b8c40fd"
    assert [file.path for file in release.files] == [f"model/{i}.npy" for i in range(15)]
    assert release.files[2].sha1 == "9a78f2c8f5447d0eb2c93d6f8f2632483441a072"
    assert sum(file.sha256 is not None for file in release.files) == 8
    assert (entry.sentiment_unit, entry.polarity, entry.status) == (2388, 1, "untested here")
    assert {result.source for result in entry.results} == {"published"}


def test_every_listed_entry_ships_or_says_what_is_untested(root):
    for entry in read_manifest(root / "checkpoints_manifest.json"):
        if any(isinstance(source, BundledSource) for source in entry.sources):
            assert registry.bundled_folder(entry).is_dir()
        else:
            assert entry.untested
