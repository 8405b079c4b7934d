"""Every fault of a download, over real HTTP on loopback: `python -m tests.hub_faults` prints one line for each.

After a fault there is either the right model or one clear error; the next try in good weather succeeds; the load after
that makes no request. `tests/test_hub.py` runs the same table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from lbzoo import cache as places
from tests.fake_hub import COMMIT, running
from tests.hub_bench import BIG, HUB, RELEASE, REPO, Bench, age, bench, listing, read_only


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault of one of the two sources; `run` makes it happen, asserts, and says what came of it."""

    name: str
    kind: str
    run: Callable[[Bench], str]


CASES: list[Case] = []


def case(name: str, *kinds: str) -> Callable:
    def add(run: Callable[[Bench], str]) -> Callable[[Bench], str]:
        CASES.extend(Case(name, kind, run) for kind in kinds or (HUB, RELEASE))
        return run

    return add


def run(one: Case) -> str:
    """Make the fault happen, then check that good weather mends all; gives the outcome in words."""
    with bench(one.kind) as made:
        outcome = one.run(made)
        made.quiet()
        return outcome


# the table -----------------------------------------------------------------------------------------------------------


@case("stream cut once, at the first, a middle and the last byte")
def cut(b: Bench) -> str:
    size = len(b.files["model.safetensors"] if b.kind == HUB else b.release["2.npy"])
    points = (0, 1, 4097, size - 1) if b.kind == RELEASE else (0, size - 1)
    for point in points:
        b.cache = b.folder / f"cache-{point}"
        b.server.fail("cut", point, path=BIG[b.kind])
        b.right()
        assert all(not fault.times for fault in b.server.faults)
    return "the right model each time"


@case("stream cut again and again", RELEASE)
def cut_always(b: Bench) -> str:
    b.server.fail("cut", 0, path=BIG[b.kind], times=99)
    return b.fails("cut", BIG[b.kind])


@case("wrong bytes of the right length, once")
def flip(b: Bench) -> str:
    b.server.fail("flip", path=BIG[b.kind])
    outcome = b.right()
    assert list(b.cache.rglob("*.corrupt")) or b.kind == RELEASE  # a release's are removed with its originals
    return outcome + " from a second fetch; the wrong bytes set aside"


@case("wrong bytes of the right length, always")
def flip_always(b: Bench) -> str:
    b.server.fail("flip", path=BIG[b.kind], times=99)
    return b.fails("changed", BIG[b.kind], "Expected: ", "2 times", "corrupt")


@case("a wrong length: bytes too many or one too few, always")
def length(b: Bench) -> str:
    for kind in ("grow", "shrink"):
        b.server.heal()
        b.server.fail(kind, path=BIG[b.kind], times=99)
        outcome = b.fails("changed" if b.kind == RELEASE else "cut", BIG[b.kind])
    return outcome


@case("the repository was changed: another hash announced", HUB)
def changed_upstream(b: Bench) -> str:
    b.server.add_repo(REPO, {**b.files, "model.safetensors": b.files["model.safetensors"][::-1]})
    outcome = b.fails("changed", "model.safetensors", "Nothing was downloaded")
    b.server.add_repo(REPO, b.files)
    return outcome


@case("429 with Retry-After 1, then good")
def busy(b: Bench) -> str:
    started = time.monotonic()
    method = "HEAD" if b.kind == HUB else "GET"
    b.server.fail("status", 429, method=method, path=BIG[b.kind], headers={"Retry-After": "1"})
    outcome = b.right()
    assert time.monotonic() - started >= 1
    return outcome + " after the wait"


@case("429 with Retry-After on the body, then good", HUB)
def busy_body(b: Bench) -> str:
    b.server.fail("status", 429, path=BIG[b.kind], headers={"Retry-After": "1"})
    return b.right()


@case("429 with Retry-After of an hour")
def busy_long(b: Bench) -> str:
    method = "HEAD" if b.kind == HUB else "GET"
    b.server.fail("status", 429, method=method, path=BIG[b.kind], headers={"Retry-After": "3600"}, times=99)
    return b.fails("rate-limit", BIG[b.kind], "Retry-After 3600", "Wait 3600 s")


@case("503 twice, then good")
def flaky(b: Bench) -> str:
    for method in ("HEAD", "GET"):
        b.server.fail("status", 503, method=method, path=BIG[b.kind], times=2)
    return b.right()


@case("503 for ever")
def down(b: Bench) -> str:
    b.server.fail("status", 503, method="HEAD|GET", path=BIG[b.kind], times=99)
    return b.fails("server", BIG[b.kind], "HTTP 503", "3 times")


@case("redirect to another host")
def redirect(b: Bench) -> str:
    with running() as other:
        if b.kind == HUB:
            other.raw["/cdn/model.safetensors"] = b.files["model.safetensors"]
        else:
            other.raw.update(b.server.raw)
        b.server.fail("redirect", other.other_url, method="HEAD|GET", path=BIG[b.kind], times=99)
        outcome = b.right()
        assert other.log and not [seen for seen in other.log if seen.authorization]
        sent = [seen.authorization for seen in b.server.log]
        assert all(sent) if b.kind == HUB else not any(sent)
    return outcome + "; no token left the first host"


@case("401 and 403: no token, a wrong one, a gated repository")
def denied(b: Bench) -> str:
    for status, kind in ((401, "RepoNotFound"), (403, "GatedRepo")):
        b.server.heal()
        headers = {"X-Error-Code": kind} if b.kind == HUB else {}
        b.server.fail("status", status, method="HEAD|GET", times=99, headers=headers)
        outcome = b.fails("denied", f"HTTP {status}", *(("hf auth login",) if b.kind == HUB else ()))
        assert ("gated" in outcome) == (b.kind == HUB and status == 403)
    return outcome


@case("404 of the repository")
def no_repo(b: Bench) -> str:
    kept = dict(b.server.repos), dict(b.server.raw)
    b.server.repos.clear(), b.server.raw.clear()
    outcome = b.fails("not-found", "no such repository" if b.kind == HUB else "no such file")
    b.server.repos.update(kept[0]), b.server.raw.update(kept[1])
    return outcome


@case("404 of the revision", HUB)
def no_revision(b: Bench) -> str:
    commits = b.server.repos[REPO]["commits"]
    commits["b" * 40] = commits.pop(COMMIT)
    outcome = b.fails("not-found", "no such revision")
    commits[COMMIT] = commits.pop("b" * 40)
    return outcome


@case("404 of a file")
def no_file(b: Bench) -> str:
    if b.kind == HUB:
        held = b.server.repos[REPO]["commits"][COMMIT].pop("card.json")
        outcome = b.fails("not-found", "card.json", "no such file")
        b.server.repos[REPO]["commits"][COMMIT]["card.json"] = held
        return outcome
    b.server.fail("status", 404, path="/7.npy", times=99)
    return b.fails("not-found", "model/7.npy", "no such file")


@case("a body that stops half-way once")
def slow_once(b: Bench) -> str:
    b.server.fail("slow", 4, path=BIG[b.kind])
    return b.right()


@case("a body that stops half-way always", RELEASE)
def slow_always(b: Bench) -> str:
    b.server.fail("slow", 4, path=BIG[b.kind], times=99)
    return b.fails("timeout", BIG[b.kind], "LBZOO_TIMEOUT")


@case("a server that takes the request and says nothing")
def silent(b: Bench) -> str:
    b.server.fail("hang", 4, method="HEAD|GET", path=BIG[b.kind], times=99)
    return b.fails("timeout", BIG[b.kind], "LBZOO_TIMEOUT")


@case("a body that never comes", HUB)
def silent_body(b: Bench) -> str:
    b.server.fail("hang", 4, path=BIG[b.kind], times=99)
    return b.fails("timeout", BIG[b.kind], "LBZOO_TIMEOUT")


@case("connection refused")
def refused(b: Bench) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    right = os.environ["HF_ENDPOINT"]
    os.environ["HF_ENDPOINT"] = os.environ["LBZOO_RELEASE_ENDPOINT"] = address
    try:
        return b.fails("unreachable", address, "ECONNREFUSED")
    finally:
        os.environ["HF_ENDPOINT"] = os.environ["LBZOO_RELEASE_ENDPOINT"] = right


@case("an address that answers, but is no Hub", HUB)
def no_hub(b: Bench) -> str:
    b.server.fail("status", 200, method="HEAD|GET", times=99)
    return b.fails("unreachable", "HF_ENDPOINT")


@case("not published yet", HUB)
def unpublished(b: Bench) -> str:
    b.write_manifest(published=False)
    outcome = b.fails("unpublished", "no request was made")
    assert not b.server.log
    b.write_manifest()
    return outcome


@case("the manifest has no hash yet: the Hub's own is checked and recorded", HUB)
def no_hash(b: Bench) -> str:
    b.write_manifest(hashes=False)
    b.server.fail("flip", path=BIG[b.kind])
    b.right()
    kept = places.read_record(places.locate(b.cache), f"lbzoo--tiny--{COMMIT}")["files"]
    assert kept["model.safetensors"]["sha256"] == hashlib.sha256(b.files["model.safetensors"]).hexdigest()
    b.spoil()
    b.server.log.clear()
    outcome = b.right()
    assert [seen.method for seen in b.server.log].count("GET") == 1
    return outcome + ", and again after its blob was spoilt"


@case("two processes at once")
def together(b: Bench) -> str:
    assert [b.finish(worker) for worker in [b.worker(), b.worker()]] == ["right", "right"]
    return "the right model in both"


@case("read-only cache, full")
def read_only_full(b: Bench) -> str:
    b.get()
    before, b.server.log[:] = listing(b.cache), []
    read_only(b.cache, True)
    try:
        assert b.finish(b.worker("--as-nobody")) == "right"
        assert listing(b.cache) == before and not b.server.log
    finally:
        read_only(b.cache, False)
    return "the right model, nothing written, no request"


@case("read-only cache, empty")
def read_only_empty(b: Bench) -> str:
    b.cache.mkdir()
    read_only(b.cache, True)
    try:
        outcome = b.finish(b.worker("--as-nobody"))
    finally:
        read_only(b.cache, False)
    assert "[cache]" in outcome and "LBZOO_CACHE" in outcome, outcome
    return outcome


@case("disk full while writing")
def full_disk(b: Bench) -> str:
    outcome = b.finish(b.worker("--small-files"))
    assert "[disk-full]" in outcome, outcome
    return outcome


@case("offline with a full cache")
def offline_full(b: Bench) -> str:
    b.get()
    b.server.log.clear()
    os.environ["LBZOO_OFFLINE"] = "1"
    try:
        outcome = b.right()
    finally:
        del os.environ["LBZOO_OFFLINE"]
    assert not b.server.log
    return outcome + ", no request"


@case("offline with an empty cache")
def offline_empty(b: Bench) -> str:
    outcome = b.fails("offline", "tiny", "lbzoo download tiny", offline=True)
    assert not b.server.log
    return outcome


@case("cached bytes spoilt on disk")
def spoilt(b: Bench) -> str:
    b.get()
    b.spoil()
    outcome = b.right()
    assert list(b.cache.rglob("*.corrupt"))
    return outcome + ", fetched again; the wrong bytes set aside"


@case("cached bytes spoilt on disk, offline")
def spoilt_offline(b: Bench) -> str:
    b.get()
    b.spoil()
    return b.fails("changed", "model.safetensors", "corrupt", offline=True)


@case("cache moved to another path")
def moved(b: Bench) -> str:
    b.get()
    b.cache = b.cache.rename(b.folder / "moved")
    b.server.log.clear()
    outcome = b.right()
    assert not b.server.log
    return outcome + ", no request"


@case("cache path with spaces and letters beyond ASCII")
def odd_path(b: Bench) -> str:
    b.cache = b.folder / "mein Zwischenspeicher für Modelle 缓存"
    return b.right()


@case("kill -9 during the download")
def kill_download(b: Bench) -> str:
    b.server.fail("slow", 30, path=BIG[b.kind])
    worker = b.worker(LBZOO_TIMEOUT="30", HF_HUB_DOWNLOAD_TIMEOUT="30")
    b.until(lambda: [s for s in b.server.log if s.method == "GET" and BIG[b.kind] in s.path], worker)
    time.sleep(0.2)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    assert worker.returncode == -signal.SIGKILL
    age(b.cache)
    b.server.log.clear()
    outcome = b.right()
    if b.kind == RELEASE:  # what was complete is not fetched again
        assert not [seen for seen in b.server.log if seen.path.endswith("/0.npy")]
    for left in b.cache.rglob("*.incomplete"):  # the client's own; it never uses them again
        left.unlink()
    return outcome + " at the next try"


@case("kill -9 during the conversion", RELEASE)
def kill_conversion(b: Bench) -> str:
    worker = b.worker("--stop-in-conversion")
    b.until(lambda: list(b.cache.rglob("half")), worker)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    age(b.cache)
    b.server.log.clear()
    outcome = b.right()
    assert not b.server.log and not list(b.cache.rglob("half"))
    return outcome + " at the next try, without a new download"


def main(arguments: list[str]) -> int:
    logging.getLogger("lbzoo").setLevel(logging.ERROR)
    failed = 0
    for one in CASES:
        if arguments and not any(word in one.name for word in arguments):
            continue
        started = time.monotonic()
        try:
            outcome = f"ok    {run(one)}"
        except Exception as error:  # the table goes on; a broken promise is a line, too
            outcome, failed = f"FAILED {type(error).__name__}: {str(error)[:2000]}", failed + 1
        print(f"{one.kind:<8}{one.name}: {outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{failed} of the faults had another outcome than stated" if failed else "all as stated")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
