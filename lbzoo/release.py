"""An original release (OpenAI's 15 `.npy` files on GitHub) downloaded, checked and converted once into our folder.

No library speaks for this download: it is one public host, plain HTTPS, no token. Each file is checked by git's blob
SHA-1 (which covers its length) and by SHA-256 where that is known. Finished files stay until all are converted, so a
killed download goes on with the next file.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import shutil
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lbzoo import cache as places
from lbzoo import checkpoint
from lbzoo.convert import openai_mlstm
from lbzoo.errors import CheckpointError, DownloadError, LbzooError
from lbzoo.files import mismatch, sweep
from lbzoo.folder import CONFIG, VerifiedFolder, measure, verify
from lbzoo.manifest import Entry, FileSpec, OpenAIRelease, ReleaseFile
from lbzoo.transport import Patience, diagnose, failure, retrying

_BLOCK = 1 << 18
_SLACK = 4096  # bytes past the expected size before a runaway body is cut
_DEAD_AFTER = 600  # seconds; a download at work writes every moment


def place_of(entry: Entry, source: OpenAIRelease, cache: places.Cache) -> Path:
    """Where the converted checkpoint lies (or will)."""
    return cache.ours / "releases" / f"{entry.name}-{source.commit[:12]}"


def originals(entry: Entry, source: OpenAIRelease, cache: places.Cache) -> Path:
    """Where the original files lie while they are downloaded, and after it with `keep_originals`."""
    return cache.ours / "originals" / f"{entry.name}-{source.commit[:12]}"


def cached(entry: Entry, source: OpenAIRelease, cache: places.Cache) -> VerifiedFolder | None:
    """The converted folder if it is there; its bytes are checked. Makes no request and writes nothing.

    Raises:
        CheckpointError: it is there, but a file is missing or changed.
    """
    place = place_of(entry, source, cache)
    return verify(place, recorded(cache, place)) if place.is_dir() else None


def recorded(cache: places.Cache, place: Path) -> list[FileSpec]:
    """What `config.json` of a converted folder must be: it holds the hashes of the other files, but not its own."""
    found = places.read_record(cache, f"release--{place.name}")
    return [FileSpec(CONFIG, found["size"], found["sha256"])] if {"size", "sha256"} <= set(found) else []


def fetch(
    entry: Entry, source: OpenAIRelease, cache: places.Cache, progress: bool = False, keep_originals: bool = False
) -> VerifiedFolder:
    """Download what is missing, convert, and return the folder, checked.

    Raises:
        DownloadError: a file cannot be had or has other bytes than the published ones.
        CheckpointError: the files do not make the model that the manifest describes.
    """
    patience = Patience.from_environment()
    target, kept = place_of(entry, source, cache), originals(entry, source, cache)
    try:
        sweep(kept, "*.part", _DEAD_AFTER)
        _require_room(entry, kept)
        with _bar(entry, progress) as bar:
            for file in source.files:
                _fetch_file(source, file, kept, patience, bar)
        _convert(entry, source, kept, target, cache)
        made = verify(target, recorded(cache, target))
    except (CheckpointError, OSError) as error:
        with contextlib.suppress(CheckpointError):
            made = cached(entry, source, cache)
            if made is not None:  # another process finished, and removed what we were reading
                return made
        fault = None if isinstance(error, LbzooError) else diagnose(error)
        if fault is None:
            raise
        raise failure(fault, entry.name, str(kept)) from None
    if not keep_originals:
        shutil.rmtree(kept, ignore_errors=True)
    return made


def url(source: OpenAIRelease, path: str) -> str:
    """A file's address; LBZOO_RELEASE_ENDPOINT replaces scheme and host, for tests against a local server."""
    address, endpoint = source.url(path), os.environ.get("LBZOO_RELEASE_ENDPOINT")
    return endpoint.rstrip("/") + urllib.parse.urlsplit(address).path if endpoint else address


def _fetch_file(source: OpenAIRelease, file: ReleaseFile, kept: Path, patience: Patience, bar: Any) -> None:
    target, address = kept / Path(file.path).name, url(source, file.path)
    if target.is_file() and mismatch(target, sha256=file.sha256, sha1=file.sha1) is None:
        bar.update(target.stat().st_size)
        return
    for attempt in (1, 2):
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.part")
        try:
            retrying(
                lambda part=part: _attempt(address, part, file.size, patience.timeout, bar),
                file.path,
                address,
                patience,
            )
            wrong = mismatch(part, sha256=file.sha256, sha1=file.sha1)
            if wrong is None:
                os.replace(part, target)
                return
            bar.update(-part.stat().st_size)
            kept_at = target.with_name(target.name + ".corrupt")
            with contextlib.suppress(OSError):
                os.replace(part, kept_at)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
        if attempt == 2:
            size = "" if file.size is None else f" ({file.size} bytes)"
            raise DownloadError(
                f"{file.path}: the bytes are not those of the release. Tried: {address} (2 times). "
                f"Expected: {wrong.expected}{size}. Received: {wrong.received}. They were kept as {kept_at} and "
                "nothing was loaded. Is a proxy or a login page in between? If not, report it.",
                code="changed",
            )


def _attempt(address: str, part: Path, size: int | None, timeout: float, bar: Any) -> None:
    """One request that appends to `part`, going on where an earlier one was cut."""
    part.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "lbzoo", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    limit = (size if size is not None else 1 << 34) + _SLACK
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout) as response:
        resumed = response.status == 206 and f"bytes {have}-" in (response.headers.get("Content-Range") or "")
        if have and not resumed:
            bar.update(-have)
            have = 0
        announced = response.headers.get("Content-Length")
        end = have + int(announced) if announced and announced.isdigit() else None
        with open(part, "ab" if have else "wb") as out:
            while have <= limit:
                block = response.read1(_BLOCK)
                if not block:
                    break
                out.write(block)
                have += len(block)
                bar.update(len(block))
    if end is not None and have < min(end, limit):
        raise http.client.IncompleteRead(b"", end - have)  # urllib is silent about a body cut short


def _convert(entry: Entry, source: OpenAIRelease, kept: Path, target: Path, cache: places.Cache) -> None:
    config, tensors = openai_mlstm.read_npy_folder(kept)
    if config != entry.config:
        raise CheckpointError(
            f"the files of {source.repo} do not make {entry.name}. Expected: {entry.config}. Received: {config}. "
            "Report this: the manifest and the release disagree."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    card = {
        "name": entry.name,
        "license": source.license,
        "source": {"kind": source.kind, "repo": source.repo, "revision": source.commit},
        "converted_from": {file.path: {"git_blob_sha1": file.sha1} for file in source.files},
    }
    checkpoint.write(target, config=config, text=entry.text, tensors=tensors, card=card)
    spec = measure(target / CONFIG)  # see `recorded`
    places.write_record(cache, f"release--{target.name}", {"size": spec.size, "sha256": spec.sha256})


def _bytes_of(entry: Entry) -> int:
    """Bytes of the weights, which the configuration tells; the originals have a few more, for their headers."""
    return 4 * sum(math.prod(shape) for shape in entry.config.shapes().values())


def _require_room(entry: Entry, kept: Path) -> None:
    there = sum(path.stat().st_size for path in kept.glob("*.npy"))
    needed, free = 2 * _bytes_of(entry) - there, places.free_bytes(kept)
    if free is not None and free < needed:
        raise DownloadError(
            f"{entry.name}: not enough room on the disk of {kept}: download and conversion need {needed:,} bytes. "
            f"Received: {free:,} bytes free. Free disk space, or set LBZOO_CACHE to a larger disk.",
            code="disk-full",
        )


@contextlib.contextmanager
def _bar(entry: Entry, progress: bool) -> Iterator[Any]:
    from tqdm import tqdm

    total = _bytes_of(entry)
    with tqdm(total=total, desc=entry.name, unit="B", unit_scale=True, disable=not progress, leave=False) as bar:
        yield bar
