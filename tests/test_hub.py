"""Names and repositories to verified folders: the table of faults, sources in order, other people's repositories."""

from __future__ import annotations

import dataclasses
import email.utils
import json
import os
import socket
import ssl
import time
import urllib.error
from pathlib import Path

import pytest
from huggingface_hub import constants

from lbzoo import cache as places
from lbzoo import checkpoint, files, hub, hub_client, loading, manifest, registry, transport
from lbzoo.errors import CheckpointError, DownloadError
from tests import hub_faults
from tests.fake_hub import COMMIT
from tests.hub_bench import HUB, RELEASE, REPO, SECRET, Bench, bench


@pytest.fixture
def hub_bench():
    with bench(HUB) as made:
        yield made


@pytest.fixture
def release_bench():
    with bench(RELEASE) as made:
        yield made


@pytest.mark.parametrize("one", hub_faults.CASES, ids=lambda one: f"{one.kind}: {one.name}")
def test_fault(one: hub_faults.Case) -> None:
    assert hub_faults.run(one)


def test_every_fault_of_the_issue_is_in_the_table() -> None:
    names = " | ".join(one.name for one in hub_faults.CASES)
    for word in (
        "cut", "wrong bytes", "wrong length", "429", "503 twice", "redirect", "401", "403", "404 of the repository",
        "404 of the revision", "404 of a file", "half-way", "refused", "two processes", "read-only cache, full",
        "read-only cache, empty", "offline with a full", "offline with an empty", "spoilt on disk", "moved",
        "beyond ASCII",
        "kill -9 during the download", "kill -9 during the conversion", "disk full", "not published",
    ):  # fmt: skip
        assert word in names, word


def test_the_release_can_be_cut_at_any_byte(release_bench: Bench) -> None:
    size = len(release_bench.release["2.npy"])
    for point in range(0, size, 111):
        release_bench.cache = release_bench.folder / f"cache-{point}"
        release_bench.server.heal()
        release_bench.server.fail("cut", point, path="/2.npy")
        release_bench.get()
        assert [seen.range for seen in release_bench.server.log if "/2.npy" in seen.path] == [
            None,
            f"bytes={point}-" if point else None,
        ]


def test_a_server_without_ranges_starts_the_file_again(release_bench: Bench, monkeypatch) -> None:
    release_bench.server.fail("cut", 500, path="/2.npy")
    handler = release_bench.server._http.RequestHandlerClass
    real = handler.do_GET

    def without_range(self) -> None:
        del self.headers["Range"]
        real(self)

    monkeypatch.setattr(handler, "do_GET", without_range)
    release_bench.get()


def test_originals_are_removed_unless_asked(release_bench: Bench) -> None:
    release_bench.get()
    assert not list(release_bench.cache.rglob("*.npy"))
    release_bench.cache = release_bench.folder / "other"
    release_bench.get(keep_originals=True)
    assert len(list(release_bench.cache.rglob("*.npy"))) == 15


def test_a_changed_config_of_a_converted_release_is_noticed(release_bench: Bench) -> None:
    path = release_bench.get() / "config.json"
    path.write_bytes(path.read_bytes().replace(b'"text": "openai"', b'"text": "reviews"'))
    with pytest.raises(DownloadError, match=r"config\.json"):
        release_bench.get(offline=True)
    release_bench.get()


def test_a_release_that_makes_another_model_is_refused(release_bench: Bench) -> None:
    config = dataclasses.replace(release_bench.entry.config, units=32)
    with pytest.raises(CheckpointError, match="do not make tiny"):
        hub.resolve(dataclasses.replace(release_bench.entry, config=config), cache=release_bench.cache)


def test_the_card_of_a_converted_release_names_its_source(release_bench: Bench) -> None:
    card = checkpoint.load_card(release_bench.get())
    assert card["source"]["revision"] == COMMIT
    assert len(card["converted_from"]) == 15


def test_too_little_room_is_an_error_before_the_download(release_bench: Bench, hub_bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(places, "free_bytes", lambda folder: 1000)
    for made in (release_bench, hub_bench):
        with pytest.raises(DownloadError, match="1,000 bytes free") as caught:
            made.get()
        assert caught.value.code == "disk-full"
        assert not made.server.log


# sources in order ----------------------------------------------------------------------------------------------------


def _both(hub_made: Bench, release_made: Bench) -> manifest.Entry:
    """The Hub first, then the release."""
    sources = (*hub_made.entry.sources, *release_made.entry.sources)
    return dataclasses.replace(hub_made.entry, sources=sources)


def test_the_second_source_is_used_when_the_first_fails(hub_bench: Bench, release_bench: Bench, monkeypatch) -> None:
    entry = _both(hub_bench, release_bench)
    monkeypatch.setenv("HF_ENDPOINT", hub_bench.server.url)
    hub_bench.server.fail("status", 404, method="HEAD|GET", times=99, headers={"X-Error-Code": "RepoNotFound"})
    folder = release_bench.require_right(hub.resolve(entry, cache=hub_bench.cache).folder)
    assert "releases" in folder.parts
    hub_bench.server.heal(), release_bench.server.heal()
    assert hub.resolve(entry, cache=hub_bench.cache).folder == folder  # what is here comes first
    assert not hub_bench.server.log + release_bench.server.log


def test_an_unpublished_source_is_passed_over(hub_bench: Bench, release_bench: Bench, monkeypatch) -> None:
    hub_bench.write_manifest(published=False)
    monkeypatch.setenv("HF_ENDPOINT", hub_bench.server.url)
    release_bench.require_right(hub.resolve(_both(hub_bench, release_bench), cache=hub_bench.cache).folder)
    assert not hub_bench.server.log


def test_when_all_sources_fail_the_error_names_each(hub_bench: Bench, release_bench: Bench, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub_bench.server.url)
    for made in (hub_bench, release_bench):
        made.server.fail("status", 403, method="HEAD|GET", times=99)
    with pytest.raises(DownloadError) as caught:
        hub.resolve(_both(hub_bench, release_bench), cache=hub_bench.cache)
    assert "none of its 2 sources" in str(caught.value)
    assert hub_bench.server.url in str(caught.value) and release_bench.server.url in str(caught.value)


def test_a_bundled_checkpoint_is_checked_and_needs_no_network(hub_bench: Bench, monkeypatch) -> None:
    entry = dataclasses.replace(hub_bench.entry, sources=(manifest.BundledSource(),))
    monkeypatch.setattr(registry, "BUNDLED", hub_bench.folder)
    for offline in (False, True):
        with pytest.raises(DownloadError, match="Install lbzoo again"):
            hub.resolve(entry, cache=hub_bench.cache, offline=offline)
    (hub_bench.folder / "made").rename(hub_bench.folder / "tiny")
    assert hub.resolve(entry, cache=hub_bench.cache, offline=True).folder == hub_bench.folder / "tiny"
    assert hub.is_here(entry, hub_bench.cache)
    (hub_bench.folder / "tiny" / "card.json").write_bytes(b'{"name": "tony"}\n')
    with pytest.raises(DownloadError, match=r"card\.json.*Expected: .*Received: .*install lbzoo again") as caught:
        hub.resolve(entry, cache=hub_bench.cache)
    assert caught.value.code == "changed"
    assert not hub_bench.server.log and not hub_bench.cache.exists()


def test_a_repository_that_is_not_what_the_manifest_says_is_refused(hub_bench: Bench) -> None:
    with pytest.raises(CheckpointError, match="not what the manifest says"):
        hub.resolve(dataclasses.replace(hub_bench.entry, text="reviews"), cache=hub_bench.cache)


def test_is_here(hub_bench: Bench) -> None:
    assert not hub.is_here(hub_bench.entry, hub_bench.cache)
    hub_bench.get()
    assert hub.is_here(hub_bench.entry, hub_bench.cache)


def test_the_cache_is_the_argument_then_the_environment_then_the_hubs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LBZOO_CACHE", str(tmp_path / "b"))
    assert places.locate(tmp_path / "a").hub == str(tmp_path / "a")
    assert places.locate().hub == str(tmp_path / "b")
    monkeypatch.delenv("LBZOO_CACHE")
    assert places.locate().hub == constants.HF_HUB_CACHE


@pytest.mark.parametrize("name", ["LBZOO_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_is_the_argument_then_the_environment(name: str, monkeypatch) -> None:
    monkeypatch.setenv(name, "1")
    assert places.is_offline() and not places.is_offline(False)
    monkeypatch.setenv(name, "0")
    assert not places.is_offline() and places.is_offline(True)


def test_a_release_converted_here_stays_good_when_the_hub_copy_is_published(
    hub_bench: Bench, release_bench: Bench, monkeypatch
) -> None:
    folder = release_bench.get()
    entry = _both(hub_bench, release_bench)
    monkeypatch.setattr(registry, "entries", lambda: (entry,))
    assert hub.resolve(entry, release_bench.cache, offline=True).config_file not in entry.files
    assert hub.resolve(entry, hub_bench.cache).config_file in entry.files
    assert loading.checkpoint_folder("tiny", cache=release_bench.cache, offline=True) == folder
    assert loading.checkpoint_folder("tiny", cache=hub_bench.cache, offline=True) == hub_bench.get()


# user/repo[@revision] ------------------------------------------------------------------------------------------------


def test_a_branch_is_resolved_to_its_commit(hub_bench: Bench) -> None:
    found = hub.resolve_repo(REPO, cache=hub_bench.cache)
    assert (found.name, found.revision) == (REPO, COMMIT)
    hub_bench.require_right(found.folder)
    hub_bench.server.log.clear()
    assert hub.resolve_repo(REPO, cache=hub_bench.cache) == found
    assert [seen.path for seen in hub_bench.server.log] == [f"/api/models/{REPO}/revision/main"]
    hub_bench.server.log.clear()
    assert hub.resolve_repo(f"{REPO}@{COMMIT}", cache=hub_bench.cache) == found
    assert hub.resolve_repo(REPO, cache=hub_bench.cache, offline=True) == found
    assert not hub_bench.server.log


def test_a_branch_that_moved_gives_the_new_commit(hub_bench: Bench) -> None:
    hub.resolve_repo(REPO, cache=hub_bench.cache)
    hub_bench.server.add_repo(REPO, hub_bench.files, commit="c" * 40)
    assert hub.resolve_repo(REPO, cache=hub_bench.cache).revision == "c" * 40
    assert hub.resolve_repo(f"{REPO}@{COMMIT}", cache=hub_bench.cache).revision == COMMIT


def test_without_a_network_the_branch_is_where_it_was(hub_bench: Bench, monkeypatch) -> None:
    with pytest.raises(DownloadError) as caught:
        hub.resolve_repo(REPO, cache=hub_bench.cache, offline=True)
    assert caught.value.code == "offline"
    found = hub.resolve_repo(REPO, cache=hub_bench.cache)
    hub_bench.server.fail("status", 503, method="HEAD|GET", times=99)
    assert hub.resolve_repo(REPO, cache=hub_bench.cache) == found
    hub_bench.server.faults.clear()
    hub_bench.server.fail("status", 403, method="HEAD|GET", times=99)
    with pytest.raises(DownloadError):  # access was taken away: that is no network fault
        hub.resolve_repo(REPO, cache=hub_bench.cache)


def test_a_spoilt_file_of_a_repository_is_fetched_again(hub_bench: Bench) -> None:
    folder = hub.resolve_repo(REPO, cache=hub_bench.cache).folder
    for name in ("config.json", "model.safetensors"):
        blob = Path(os.path.realpath(folder / name))
        blob.write_bytes(bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:])
        hub_bench.require_right(hub.resolve_repo(f"{REPO}@{COMMIT}", cache=hub_bench.cache).folder)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": b'{"model_type": "gpt2"}', "model.safetensors": b"x"}, "Transformers checkpoint.*'gpt2'"),
        ({"config.json": b'{"architectures": ["GPT2"]}', "pytorch_model.bin": b"x"}, "Transformers checkpoint"),
        ({"config.json": b"{}", "model.safetensors": b"x"}, "config.json is not lbzoo's"),
        ({"config.json": b"[1, 2"}, "config.json is not lbzoo's"),
        ({"model.safetensors": b"x"}, "safetensors weights without a config.json"),
        ({"0.npy": b"x", "1.npy": b"y"}, r"weights in a format that lbzoo does not load \(0.npy\)"),
        ({"README.md": b"hello"}, "without model weights.*README.md"),
        ({"config.json": b'{"format": 2}'}, "format must be 1"),
        (
            {"config.json": json.dumps({"format": 1, "architecture": "os.system", "config": {}}).encode()},
            "architecture",
        ),
    ],
)
def test_a_repository_of_another_kind_says_what_it_is(files: dict, words: str, hub_bench: Bench) -> None:
    hub_bench.server.add_repo("some/thing", files)
    with pytest.raises(CheckpointError, match=words):
        hub.resolve_repo("some/thing", cache=hub_bench.cache)


def test_a_repository_cannot_name_files_outside_its_folder(hub_bench: Bench) -> None:
    config = json.loads(hub_bench.files["config.json"])
    config["files"]["../../escape.json"] = {"size": 3, "sha256": "0" * 64}
    hub_bench.server.add_repo(REPO, {**hub_bench.files, "config.json": json.dumps(config).encode()})
    with pytest.raises(CheckpointError, match="relative path"):
        hub.resolve_repo(REPO, cache=hub_bench.cache)


@pytest.mark.parametrize("name", ["user", "user/", "a/b/c", "u/r@a@b", "u/r@../../x", "../x/y", "u/r name", "ü/r"])
def test_a_malformed_repository_name_makes_no_request(name: str, hub_bench: Bench) -> None:
    with pytest.raises(DownloadError, match="user/repo"):
        hub.resolve_repo(name, cache=hub_bench.cache)
    assert not hub_bench.server.log


def test_the_token_argument_goes_to_the_hub_and_nowhere_else(hub_bench: Bench, caplog) -> None:
    caplog.set_level("DEBUG")
    hub.resolve(hub_bench.entry, cache=hub_bench.cache, token="hf_AnotherSecret")
    assert {seen.authorization for seen in hub_bench.server.log} == {"Bearer hf_AnotherSecret"}
    hub_bench.cache = hub_bench.folder / "other"
    hub_bench.server.log.clear()
    hub.resolve(hub_bench.entry, cache=hub_bench.cache, token=False)
    assert {seen.authorization for seen in hub_bench.server.log} == {None}
    assert "hf_AnotherSecret" not in caplog.text and SECRET not in caplog.text


def test_credentials_in_the_endpoint_are_not_shown(hub_bench: Bench, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://me:password@example.org/hub")
    where = hub_client.HubRequest(REPO, COMMIT, places.locate(hub_bench.cache)).where
    assert where == f"https://example.org/hub/{REPO} at {COMMIT[:12]}"


# the words for a fault -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "passing"),
    [
        (urllib.error.URLError(socket.gaierror(-2, "Name or service not known")), "unreachable", True),
        (urllib.error.URLError(ConnectionRefusedError(111, "refused")), "unreachable", True),
        (urllib.error.URLError(ssl.SSLCertVerificationError(1, "self-signed")), "certificate", False),
        (TimeoutError("timed out"), "timeout", True),
        (ConnectionResetError(104, "reset"), "cut", True),
        (OSError(28, "No space left on device"), "disk-full", False),
        (PermissionError(13, "Permission denied", "/cache/x"), "cache", False),
        (OSError(30, "Read-only file system", "/cache/x"), "cache", False),
        (urllib.error.HTTPError("http://x", 500, "", {}, None), "server", True),
        (urllib.error.HTTPError("http://x", 418, "", {}, None), "server", False),
        (RuntimeError("what hf_xet raises"), "cut", True),
    ],
)
def test_faults_are_told_by_behaviour(error: Exception, code: str, passing: bool) -> None:
    fault = transport.diagnose(error)
    assert fault is not None and (fault.code, fault.passing) == (code, passing)
    message = str(transport.failure(fault, "model.safetensors", "https://host/repo"))
    assert "model.safetensors" in message and "Tried: https://host/repo" in message and "Received: " in message


@pytest.mark.parametrize("error", [TypeError("a bug"), KeyError("a bug"), AssertionError("a bug")])
def test_a_bug_is_not_taken_for_the_weather(error: Exception) -> None:
    assert transport.diagnose(error) is None


def test_retry_after_may_be_a_date() -> None:
    soon = email.utils.formatdate(time.time() + 30, usegmt=True)
    fault = transport.diagnose(urllib.error.HTTPError("http://x", 429, "", {"Retry-After": soon}, None))
    assert fault is not None and fault.after is not None and 25 < fault.after < 31
    fault = transport.diagnose(urllib.error.HTTPError("http://x", 429, "", {"Retry-After": "soon"}, None))
    assert fault is not None and fault.after is None


def test_patience_comes_from_the_environment(monkeypatch) -> None:
    for name, value in (("LBZOO_TRIES", "2"), ("LBZOO_TIMEOUT", "nonsense"), ("LBZOO_RETRY_LIMIT", "-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LBZOO_RETRY_WAIT", raising=False)
    assert transport.Patience.from_environment() == transport.Patience(tries=2)


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    for name, age in (("old.part", 3600), ("new.part", 1)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    files.sweep(tmp_path, "*.part", 600)
    assert [path.name for path in tmp_path.iterdir()] == ["new.part"]
