"""An entry of the manifest, or `user/repo[@revision]`, to a local folder whose every byte has been checked.

Order: a source that is already on this machine, then the sources as the manifest lists them. What is cached costs no
request and no write. Correctness rests on unique temporary names and renames (the Hub client's and ours), not on locks.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from lbzoo import cache as places
from lbzoo import files as disk
from lbzoo import folder as folders
from lbzoo import hub_client, registry, release
from lbzoo.errors import CheckpointError, DownloadError
from lbzoo.hub_client import HubRequest
from lbzoo.manifest import REPO, BundledSource, Entry, FileSpec, HubSource, OpenAIRelease, Source

log = logging.getLogger("lbzoo")

_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\Z")
_NOT_ON_NETWORK_FAULTS = ("unreachable", "timeout", "cut", "server", "rate-limit")


@dataclasses.dataclass(frozen=True)
class Located:
    """A checkpoint of a Hub repository on this machine; `revision` is the commit, 40 hex digits."""

    folder: Path
    repo: str
    revision: str


def resolve(
    entry: Entry,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
    progress: bool | None = None,
    keep_originals: bool = False,
) -> Path:
    """The verified local folder of a checkpoint of the manifest, fetched if it is not here yet.

    Args:
        cache: folder for downloads; None: LBZOO_CACHE, else the Hub's own cache.
        offline: True makes no request; None: HF_HUB_OFFLINE or LBZOO_OFFLINE.
        token: for the Hub; None: the usual places (HF_TOKEN, `hf auth login`). It is sent to the Hub only.
        progress: a bar of bytes on standard error; None: on a terminal only.
        keep_originals: leave the files of an original release in the cache after their conversion.

    Raises:
        DownloadError: no source could be used; `code` says why and the message names file, trial and next step.
        CheckpointError: the files are there and right, but do not make the model that the manifest describes.
    """
    where, bar = places.locate(cache), hub_client.wants_bar(progress)
    ready = [source for source in entry.sources if _is_here(entry, source, where)]
    later = [] if places.is_offline(offline) else [s for s in entry.sources if s not in ready and not _unpublished(s)]
    failures: list[DownloadError | CheckpointError] = []
    for source in (*ready, *later):
        try:
            if isinstance(source, BundledSource):
                folder = _bundled(entry)
            elif isinstance(source, HubSource):
                request = HubRequest(source.repo, str(source.revision), where, places.is_offline(offline), token, bar)
                folder = _hub_folder(request, entry.files)
            else:
                folder = _release(entry, source, where, places.is_offline(offline), bar, keep_originals)
            return _as_described(entry, folder)
        except (DownloadError, CheckpointError) as error:
            log.info("%s: %s source: %s", entry.name, source.kind, error)
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        lines = "\n".join(f"  {number}. {error}" for number, error in enumerate(failures, 1))
        code = next((e.code for e in failures if isinstance(e, DownloadError)), "changed")
        raise DownloadError(f"{entry.name}: none of its {len(failures)} sources could be used:\n{lines}", code=code)
    raise _nothing_to_try(entry, where, places.is_offline(offline))


def resolve_repo(
    name: str,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
    progress: bool | None = None,
) -> Located:
    """The verified local folder of an lbzoo checkpoint repository, `user/repo` or `user/repo@revision`.

    A branch or tag (default `main`) is resolved to its commit with one request; with a 40-hex commit a cached
    checkpoint costs none. Without a network, the commit that a branch had last is used.

    Raises:
        DownloadError: see `resolve`.
        CheckpointError: the repository holds something else; the message says what.
    """
    repo, _, revision = name.partition("@")
    revision = revision or "main"
    if not REPO.match(repo) or not _REVISION.match(revision) or ".." in revision or "@" in revision:
        raise DownloadError(
            f"a Hub repository is named user/repo or user/repo@revision. Received: {disk.brief(name)}.",
            code="not-found",
        )
    where = places.locate(cache)
    request = HubRequest(repo, revision, where, places.is_offline(offline), token, hub_client.wants_bar(progress))
    if not disk.SHA1.match(revision):
        request = dataclasses.replace(request, revision=_commit(request))
    try:
        config = hub_client.fetch(request, FileSpec("config.json"))
    except DownloadError as error:
        if error.code == "not-found" and "such file" in str(error):
            raise _other_kind(request, None) from None
        raise
    specs = _files_of(request, config)
    folder = _hub_folder(request, (FileSpec("config.json"), *specs))
    return Located(folder, repo, request.revision)


def is_here(entry: Entry, cache: str | os.PathLike | None = None) -> bool:
    """Whether a checkpoint is on this machine, bundled or cached, as far as file names tell (see `resolve`)."""
    where = places.locate(cache)
    return any(_is_here(entry, source, where) for source in entry.sources)


def stated_files(entry: Entry, folder: Path) -> tuple[FileSpec, ...]:
    """What the manifest states of the files in a resolved folder; one converted here has its own bytes."""
    return () if folder.parent.name == release.FOLDER else entry.files


def _is_here(entry: Entry, source: Source, where: places.Cache) -> bool:
    if isinstance(source, BundledSource):
        folder = registry.bundled_folder(entry)
        return folder is not None and folder.is_dir()
    if isinstance(source, OpenAIRelease):
        return release.place_of(entry, source, where).is_dir()
    if _unpublished(source) or not entry.files:
        return False
    request = HubRequest(source.repo, str(source.revision), where, offline=True)
    return all(hub_client.cached(request, spec.path) for spec in entry.files)


def _as_described(entry: Entry, folder: Path) -> Path:
    info = folders.read_folder(folder)
    if (info.config, info.text) != (entry.config, entry.text):
        raise CheckpointError(
            f"{folder} is not what the manifest says {entry.name} is. Expected: {entry.config}, text {entry.text!r}. "
            f"Received: {info.config}, text {info.text!r}. Report this."
        )
    return folder


def _unpublished(source: Source) -> bool:
    return isinstance(source, HubSource) and not source.published


def _bundled(entry: Entry) -> Path:
    folder = registry.bundled_folder(entry)
    if folder is None or not folder.is_dir():
        raise DownloadError(
            f"{entry.name}: its bundled folder is not installed. Received: no {folder}. Install lbzoo again.",
            code="changed",
        )
    for spec in entry.files:
        path = folder / spec.path
        wrong = places.check(path, spec.size, spec.sha256) if path.is_file() else places.Mismatch("the file", "nothing")
        if wrong is not None:
            raise DownloadError(
                f"{path}: a file that ships with lbzoo has changed. Expected: {wrong.expected}. "
                f"Received: {wrong.received}. Install lbzoo again.",
                code="changed",
            )
    return folder


def _release(entry: Entry, source: OpenAIRelease, where: places.Cache, offline: bool, bar: bool, keep: bool) -> Path:
    try:
        folder = release.cached(entry, source, where)
    except CheckpointError as error:
        moved = places.quarantine(release.place_of(entry, source, where))
        if offline:
            raise DownloadError(
                f"{error} {moved} It can be made again with the network: `lbzoo download {entry.name}`.", code="changed"
            ) from None
        log.warning("%s: %s %s Fetching it again.", entry.name, error, moved)
        folder = None
    return folder or release.fetch(entry, source, where, bar, keep)


def _hub_folder(request: HubRequest, specs: Sequence[FileSpec]) -> Path:
    missing = [spec for spec in specs if not hub_client.cached(request, spec.path)]
    needed = sum(spec.size or 0 for spec in missing)
    free = places.free_bytes(Path(request.cache.name)) if missing else None
    if free is not None and free < needed:
        raise DownloadError(
            f"{missing[0].path}: not enough room on the disk of {request.cache.name} for {request.where}. "
            f"Received: {free:,} bytes free, {needed:,} needed. Free disk space, or set LBZOO_CACHE to a larger disk.",
            code="disk-full",
        )
    found = [hub_client.fetch(request, spec) for spec in specs]
    return found[0].parents[specs[0].path.count("/")]


def _commit(request: HubRequest) -> str:
    """The commit of a branch or tag, and without a network the one it had when it was last asked for."""
    key = request.repo.replace("/", "--")
    refs = places.read_record(request.cache, key).get("refs")
    known = refs.get(request.revision) if isinstance(refs, dict) else None
    known = known if isinstance(known, str) and disk.SHA1.match(known) else None
    if request.offline:
        if known:
            return known
        raise hub_client.offline_error(request, "config.json")
    try:
        commit, _ = hub_client.listing(request)
    except DownloadError as error:
        if known and error.code in _NOT_ON_NETWORK_FAULTS:
            log.warning("%s Using commit %s, which %s had last time.", error, known, request.revision)
            return known
        raise
    if commit != known:
        kept = refs if isinstance(refs, dict) else {}
        places.write_record(request.cache, key, {"refs": {**kept, request.revision: commit}})
    return commit


def _files_of(request: HubRequest, config: Path) -> tuple[FileSpec, ...]:
    """The files that a repository's config.json lists, or an error that says what else the repository is."""
    try:
        values = disk.parse_json(config.read_bytes()) if config.stat().st_size <= folders.MAX_JSON else None
    except ValueError:
        values = None
    if not isinstance(values, dict) or "format" not in values:
        raise _other_kind(request, values if isinstance(values, dict) else {})
    return folders.read_folder(config.parent).files


def _other_kind(request: HubRequest, config: dict | None) -> CheckpointError:
    """What a repository is that holds no lbzoo checkpoint."""
    names: list[str] = []
    if not request.offline:
        names = hub_client.listing(request)[1]
    weights = sorted(n for n in names if n.endswith((".safetensors", ".bin", ".h5", ".keras", ".npy", ".pt", ".onnx")))
    if config is not None and ("model_type" in config or "architectures" in config):
        kind = (
            f"a Hugging Face Transformers checkpoint (model_type {disk.brief(config.get('model_type', 'not given'))})"
        )
    elif config is not None:
        kind = "a repository whose config.json is not lbzoo's"
    elif any(name.endswith(".safetensors") for name in weights):
        kind = "a repository of safetensors weights without a config.json"
    elif weights:
        kind = f"a repository of weights in a format that lbzoo does not load ({weights[0]})"
    else:
        kind = "a repository without model weights"
    shown = ", ".join(sorted(names)[:6]) + (", ..." if len(names) > 6 else "")
    return CheckpointError(
        f"{request.where} is {kind}, not an lbzoo checkpoint (config.json with `format` and `files`, "
        f"model.safetensors). Received: {shown or 'no list of files'}. "
        "`lbzoo list` shows the names that load; `lbzoo convert` makes a checkpoint folder from a known release."
    )


def _nothing_to_try(entry: Entry, where: places.Cache, offline: bool) -> DownloadError:
    if offline:
        return DownloadError(
            f"{entry.name} is not cached and the network is switched off (offline). Tried: {where.name}. Received: no "
            f"complete copy there. Run `lbzoo download {entry.name}` with the network on, or set LBZOO_CACHE to a "
            "cache that has it.",
            code="offline",
        )
    return DownloadError(
        f"{entry.name} is not published yet, so no request was made. Tried: {where.name}. Received: no copy there. "
        "A newer lbzoo may list it as published; `lbzoo list` shows what can be loaded now.",
        code="unpublished",
    )
