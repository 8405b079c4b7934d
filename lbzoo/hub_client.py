"""One file of a Hub repository at one commit: `hf_hub_download`, with the retries and checks that it leaves to us.

The client checks sizes only and notices nothing on disk, so each file is hashed here at every call: against the
manifest, else against the Hub's own hash (its ETag: SHA-256 for large files, git's blob SHA-1 for small ones), which
is recorded in the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lbzoo import cache as places
from lbzoo.errors import DownloadError
from lbzoo.files import SHA1, SHA256, Mismatch, brief, mismatch, sha256_file
from lbzoo.manifest import FileSpec
from lbzoo.transport import Patience, retrying

log = logging.getLogger("lbzoo")


@dataclasses.dataclass(frozen=True)
class HubRequest:
    """A repository at a revision, and how to ask for its files."""

    repo: str
    revision: str
    cache: places.Cache
    offline: bool = False
    token: str | bool | None = None
    bar: bool = False

    @property
    def where(self) -> str:
        """Host, repository and revision, for messages."""
        return f"{shown(endpoint() or 'https://huggingface.co')}/{self.repo} at {self.revision[:12]}"

    @property
    def record(self) -> str:
        """Name of the record of this commit's hashes."""
        return f"{self.repo.replace('/', '--')}--{self.revision}"


def endpoint() -> str | None:
    """HF_ENDPOINT as it is now (the client reads it at import), else None."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def shown(address: str) -> str:
    """An address without the name and password that it may hold."""
    return re.sub(r"//[^/]*@", "//", address)


def wants_bar(progress: bool | None) -> bool:
    """The argument, else whether standard error is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


def cached(request: HubRequest, path: str) -> Path | None:
    """The cached file, unchecked; no request, no write."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(request.repo, path, cache_dir=request.cache.hub, revision=request.revision)
    return Path(found) if isinstance(found, str) and os.path.isfile(found) else None


def fetch(request: HubRequest, spec: FileSpec) -> Path:
    """The checked local path of a file; what is cached is hashed, what is wrong is moved aside and fetched once more.

    Raises:
        DownloadError: see `lbzoo.hub.resolve`.
    """
    path, expected, moved = cached(request, spec.path), _expected(request, spec), ""
    if path is not None:
        if expected is None and not request.offline:
            expected = _announced(request, spec)
        wrong = _check(path, expected or spec)
        if wrong is None:
            return path
        moved = _set_aside(request, spec, path, wrong)
        if request.offline:
            raise _changed(request, spec, wrong, f"{moved} It can be fetched again with the network on.")
    elif request.offline:
        raise offline_error(request, spec.path)
    expected = _announced(request, spec)
    for _ in range(2):
        path = _download(request, spec, expected.size, force=bool(moved))
        wrong = _check(path, expected)
        if wrong is None:
            if spec.sha256 is None:
                _record(request, spec, path, expected.sha256 or sha256_file(path))
            return path
        moved = _set_aside(request, spec, path, wrong)
    raise _changed(request, spec, wrong, f"{moved} Is a proxy or a login page in between? If not, report it.", 2)


def listing(request: HubRequest) -> tuple[str, list[str]]:
    """The commit of a revision and the names of its files; one request."""
    from huggingface_hub import HfApi

    patience = Patience.from_environment()
    api = HfApi(endpoint=endpoint(), token=request.token, library_name="lbzoo")
    found = retrying(
        lambda: api.model_info(request.repo, revision=request.revision, timeout=patience.timeout),
        request.repo,
        request.where,
        patience,
    )
    if not isinstance(found.sha, str) or not SHA1.match(found.sha):
        raise DownloadError(
            f"{request.repo}: the server names no commit. Tried: {request.where}. Received: {found.sha!r}."
        )
    return found.sha, [file.rfilename for file in found.siblings or ()]


def offline_error(request: HubRequest, path: str) -> DownloadError:
    """The error for a file that is not cached while the network is off."""
    return DownloadError(
        f"{path} of {request.where} is not cached and the network is switched off (offline). Tried: "
        f"{request.cache.hub}. Received: no such file there. Load it once with the network on, or set LBZOO_CACHE to "
        "a cache that has it.",
        code="offline",
    )


def _set_aside(request: HubRequest, spec: FileSpec, path: Path, wrong: Mismatch) -> str:
    moved = places.quarantine(path)
    log.warning(
        "%s of %s: expected %s, received %s. %s", spec.path, request.where, wrong.expected, wrong.received, moved
    )
    return moved


@dataclasses.dataclass(frozen=True)
class _Hashes:
    size: int | None
    sha256: str | None
    sha1: str | None = None


def _check(path: Path, expected: _Hashes | FileSpec) -> Mismatch | None:
    try:
        return mismatch(path, expected.size, expected.sha256, getattr(expected, "sha1", None))
    except FileNotFoundError:  # another process moved it aside in this moment
        return Mismatch("the file", "nothing")


def _expected(request: HubRequest, spec: FileSpec) -> _Hashes | None:
    """What a cached file must be: the manifest's word, else what was recorded, else the name of the cache's blob."""
    if spec.sha256 is not None:
        return _Hashes(spec.size, spec.sha256)
    found = places.read_record(request.cache, request.record).get("files")
    found = found.get(spec.path) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("sha256"), str) and SHA256.match(found["sha256"]):
        return _Hashes(spec.size, found["sha256"])
    path = cached(request, spec.path)
    blob = os.path.basename(os.readlink(path)) if path is not None and path.is_symlink() else ""
    return _from_etag(spec, blob)


def _from_etag(spec: FileSpec, etag: str | None, size: int | None = None) -> _Hashes | None:
    size = spec.size if spec.size is not None else size
    if spec.sha256 is not None:
        return _Hashes(size, spec.sha256)
    if etag and SHA256.match(etag):
        return _Hashes(size, etag)
    if etag and SHA1.match(etag):
        return _Hashes(size, None, etag)
    return None


def _announced(request: HubRequest, spec: FileSpec) -> _Hashes:
    """What the Hub says of a file (one request), held against the manifest before any byte of it is downloaded."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    address = hf_hub_url(request.repo, spec.path, revision=request.revision, endpoint=endpoint())
    patience = Patience.from_environment()
    found = retrying(
        lambda: get_hf_file_metadata(address, token=request.token, timeout=patience.timeout, endpoint=endpoint()),
        spec.path,
        request.where,
        patience,
    )
    if found.commit_hash is None:
        raise DownloadError(
            f"{spec.path}: the server does not answer as a Hub does. Tried: {request.where}. Received: no commit. "
            "Is HF_ENDPOINT wrong, or a proxy or a login page in between?"
        )
    if found.commit_hash != request.revision:
        received = Mismatch(f"commit {request.revision}", f"commit {found.commit_hash}")
        raise _changed(request, spec, received, "Is HF_ENDPOINT or a proxy in between?")
    if spec.size is not None and found.size is not None and found.size != spec.size:
        received = Mismatch(f"{spec.size} bytes", f"{found.size} bytes announced")
        raise _changed(request, spec, received, "Nothing was downloaded. The repository was changed: report it.")
    if spec.sha256 is not None and found.etag and SHA256.match(found.etag) and found.etag != spec.sha256:
        received = Mismatch(f"SHA-256 {spec.sha256}", f"SHA-256 {found.etag} announced")
        raise _changed(request, spec, received, "Nothing was downloaded. The repository was changed: report it.")
    hashes = _from_etag(spec, found.etag, found.size)
    if hashes is None:
        raise DownloadError(
            f"{spec.path}: the server gives no hash to check it by. Tried: {request.where}. Received: ETag "
            f"{brief(found.etag)}. Is HF_ENDPOINT a Hugging Face Hub?",
            code="changed",
        )
    return hashes


def _download(request: HubRequest, spec: FileSpec, size: int | None, force: bool) -> Path:
    from huggingface_hub import hf_hub_download

    patience = Patience.from_environment()

    def attempt() -> Path:
        nonlocal force
        try:
            with _bars(request.bar):
                found = hf_hub_download(
                    request.repo,
                    spec.path,
                    revision=request.revision,
                    cache_dir=request.cache.hub,
                    endpoint=endpoint(),
                    token=request.token,
                    etag_timeout=patience.timeout,
                    force_download=force,
                    library_name="lbzoo",
                )
        except OSError as error:
            # a wrong length: old clients keep what came and would go on from there, for ever
            force = force or (type(error) is OSError and error.errno is None)
            raise
        return Path(found)

    # the client itself goes on after a timeout or a refused connection, five times
    file = spec.path if size is None else f"{spec.path} ({size} bytes)"
    return retrying(attempt, file, request.where, patience, passing=("cut", "server", "rate-limit"))


def _record(request: HubRequest, spec: FileSpec, path: Path, sha256: str) -> None:
    kept = places.read_record(request.cache, request.record)
    known = kept.get("files") if isinstance(kept.get("files"), dict) else {}
    about = {"size": path.stat().st_size, "sha256": sha256}
    values = {"repo": request.repo, "revision": request.revision, "files": {**known, spec.path: about}}
    places.write_record(request.cache, request.record, values)


def _changed(request: HubRequest, spec: FileSpec, wrong: Mismatch, advice: str, attempts: int = 1) -> DownloadError:
    times = f" ({attempts} times)" if attempts > 1 else ""
    return DownloadError(
        f"{spec.path}: these are not the right bytes. Tried: {request.where}{times}. Expected: {wrong.expected}. "
        f"Received: {wrong.received}. {advice}",
        code="changed",
    )


@contextlib.contextmanager
def _bars(wanted: bool) -> Iterator[None]:
    """The client's progress bars only where a bar is wanted."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if wanted or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
