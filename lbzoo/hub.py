"""An entry of the manifest, or `user/repo[@revision]`, to a local folder whose every byte has been checked.

Order: a source that is already on this machine, then the sources as the manifest lists them. What is cached costs no
request and no write, and is hashed once: the loaders take the `VerifiedFolder` as it is. Correctness rests on unique
temporary names and renames (the Hub client's and ours), not on locks.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from lbzoo import cache as places
from lbzoo import hub_client, registry, release
from lbzoo.convert.hf_config import is_bert
from lbzoo.errors import CheckpointError, DownloadError
from lbzoo.files import SHA1, brief, parse_json
from lbzoo.folder import CONFIG, MAX_JSON, WEIGHTS, VerifiedFolder, read_folder, verify
from lbzoo.hub_client import HubRequest
from lbzoo.manifest import REPO, BundledSource, Entry, FileSpec, HubSource, OpenAIRelease, Source

log = logging.getLogger("lbzoo")

HF_FILES = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "tokenizer.json")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}\Z")
_NOT_ON_NETWORK_FAULTS = ("unreachable", "timeout", "cut", "server", "rate-limit")


@dataclasses.dataclass(frozen=True)
class Located:
    """A checkpoint on this machine, every byte checked.

    Attributes:
        verified: the folder and what its `config.json` says.
        name: of the manifest, or `user/repo`.
        revision: the commit that the files come from, 40 hex digits; None for what ships with lbzoo.
        config_file: size and SHA-256 of `config.json`, which states those of the others; None where nobody knows them.
    """

    verified: VerifiedFolder
    name: str
    revision: str | None = None
    config_file: FileSpec | None = None

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return self.verified.folder


def resolve(
    entry: Entry,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
    progress: bool | None = None,
    keep_originals: bool = False,
) -> Located:
    """A checkpoint of the manifest on this machine, fetched if it is not here yet.

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
    where, bar, offline = places.locate(cache), hub_client.wants_bar(progress), places.is_offline(offline)
    ready = [source for source in entry.sources if isinstance(source, BundledSource) or _is_here(entry, source, where)]
    later = [] if offline else [s for s in entry.sources if s not in ready and not _unpublished(s)]
    failures: list[DownloadError | CheckpointError] = []
    for source in (*ready, *later):
        try:
            if isinstance(source, BundledSource):
                found = _bundled(entry)
            elif isinstance(source, HubSource):
                request = HubRequest(source.repo, str(source.revision), where, offline, token, bar)
                found = _from_hub(request, entry.files, entry.name)
            else:
                found = _released(entry, source, where, offline, bar, keep_originals)
            _require_described(entry, found.verified)
            return found
        except (DownloadError, CheckpointError) as error:
            log.info("%s: %s source: %s", entry.name, source.kind, error)
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        lines = "\n".join(f"  {number}. {error}" for number, error in enumerate(failures, 1))
        code = next((e.code for e in failures if isinstance(e, DownloadError)), "changed")
        raise DownloadError(f"{entry.name}: none of its {len(failures)} sources could be used:\n{lines}", code=code)
    raise _nothing_to_try(entry, where, offline)


def resolve_repo(
    name: str,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
    progress: bool | None = None,
) -> Located:
    """A repository with an lbzoo checkpoint or a Hugging Face BERT, `user/repo[@revision]`, on this machine.

    A branch or tag (default `main`) is resolved to its commit with one request; with a 40-hex commit a cached
    checkpoint costs none. Without a network, the commit that a branch had last is used.

    Raises:
        DownloadError: see `resolve`.
        CheckpointError: the repository holds something else; the message says what.
    """
    if not is_repo_name(name):
        raise DownloadError(
            f"a Hub repository is named user/repo or user/repo@revision. Received: {brief(name)}.",
            code="not-found",
        )
    repo, _, revision = name.partition("@")
    revision = revision or "main"
    where = places.locate(cache)
    request = HubRequest(repo, revision, where, places.is_offline(offline), token, hub_client.wants_bar(progress))
    if not SHA1.match(revision):
        request = dataclasses.replace(request, revision=_commit(request))
    try:
        config = hub_client.fetch(request, FileSpec(CONFIG))
    except DownloadError as error:
        if error.code == "not-found" and "such file" in str(error):
            raise _other_kind(request, None) from None
        raise
    return _from_hub(request, (FileSpec(CONFIG), *_files_of(request, config)), repo)


def is_repo_name(name: str) -> bool:
    """Whether a string has the form `user/repo` or `user/repo@revision`."""
    repo, mark, revision = name.partition("@")
    if mark and (not _REVISION.match(revision) or ".." in revision):
        return False
    return bool(REPO.match(repo))


def is_here(entry: Entry, cache: str | os.PathLike | None = None) -> bool:
    """Whether a checkpoint is on this machine, bundled or cached, as far as file names tell (see `resolve`)."""
    where = places.locate(cache)
    return any(_is_here(entry, source, where) for source in entry.sources)


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


def _require_described(entry: Entry, info: VerifiedFolder) -> None:
    if (info.config, info.text) != (entry.config, entry.text):
        raise CheckpointError(
            f"{info.folder} is not what the manifest says {entry.name} is. Expected: {entry.config}, text "
            f"{entry.text!r}. Received: {info.config}, text {info.text!r}. Report this."
        )


def _unpublished(source: Source) -> bool:
    return isinstance(source, HubSource) and not source.published


def _bundled(entry: Entry) -> Located:
    folder = registry.bundled_folder(entry)
    if folder is None or not folder.is_dir():
        raise DownloadError(
            f"{entry.name}: its bundled folder is not installed. Received: no {folder}. Install lbzoo again.",
            code="changed",
        )
    try:
        return Located(verify(folder, entry.files), entry.name, None, _config_file(entry.files))
    except CheckpointError as error:
        raise DownloadError(f"{error} It ships with lbzoo: install lbzoo again.", code="changed") from None


def _released(
    entry: Entry, source: OpenAIRelease, where: places.Cache, offline: bool, bar: bool, keep: bool
) -> Located:
    place = release.place_of(entry, source, where)
    try:
        folder = release.cached(entry, source, where)
    except CheckpointError as error:
        moved = places.quarantine(place)
        if offline:
            raise DownloadError(
                f"{error} {moved} It can be made again with the network: `lbzoo download {entry.name}`.", code="changed"
            ) from None
        log.warning("%s: %s %s Fetching it again.", entry.name, error, moved)
        folder = None
    folder = folder or release.fetch(entry, source, where, bar, keep)
    return Located(folder, entry.name, source.commit, _config_file(release.recorded(where, place)))


def _from_hub(request: HubRequest, specs: Sequence[FileSpec], name: str) -> Located:
    missing = [spec for spec in specs if not hub_client.cached(request, spec.path)]
    needed = sum(spec.size or 0 for spec in missing)
    free = places.free_bytes(Path(request.cache.hub)) if missing else None
    if free is not None and free < needed:
        raise DownloadError(
            f"{missing[0].path}: not enough room on the disk of {request.cache.hub} for {request.where}. "
            f"Received: {free:,} bytes free, {needed:,} needed. Free disk space, or set LBZOO_CACHE to a larger disk.",
            code="disk-full",
        )
    found = [hub_client.fetch(request, spec) for spec in specs]
    folder = found[0].parents[specs[0].path.count("/")]
    # one without a hash here was held against the Hub's; what config.json says of it is still to be checked
    verified = verify(folder, checked=[spec for spec in specs if spec.sha256])
    return Located(verified, name, request.revision, _config_file(specs))


def _config_file(specs: Sequence[FileSpec]) -> FileSpec | None:
    return next((spec for spec in specs if spec.path == CONFIG), None)


def _commit(request: HubRequest) -> str:
    """The commit of a branch or tag, and without a network the one it had when it was last asked for."""
    key = request.repo.replace("/", "--")
    refs = places.read_record(request.cache, key).get("refs")
    known = refs.get(request.revision) if isinstance(refs, dict) else None
    known = known if isinstance(known, str) and SHA1.match(known) else None
    if request.offline:
        if known:
            return known
        raise hub_client.offline_error(request, CONFIG)
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
    """The files that a repository's config.json lists, or an error that says what else the repository is.

    Of a Hugging Face BERT, those that are read.
    """
    try:
        values = parse_json(config.read_bytes()) if config.stat().st_size <= MAX_JSON else None
    except ValueError:
        values = None
    if is_bert(values):
        there = _hf_names(request)
        if WEIGHTS in there:
            return tuple(FileSpec(name) for name in there if name != CONFIG)
    if not isinstance(values, dict) or "format" not in values:
        raise _other_kind(request, values if isinstance(values, dict) else {})
    return read_folder(config.parent).files


def _hf_names(request: HubRequest) -> list[str]:
    """Which of `HF_FILES` a commit has: recorded, else what is cached, else asked for (and recorded)."""
    key = f"{request.record}--names"
    known = places.read_record(request.cache, key).get("names")
    if isinstance(known, list):
        return known
    if request.offline:
        return [name for name in HF_FILES if hub_client.cached(request, name)]
    there = hub_client.listing(request)[1]
    names = [name for name in HF_FILES if name in there]
    if {"vocab.txt", "tokenizer_config.json"} <= set(names):  # the third says the same again
        names = [name for name in names if name != "tokenizer.json"]
    places.write_record(request.cache, key, {"names": names})
    return names


def _other_kind(request: HubRequest, config: dict | None) -> CheckpointError:
    """What a repository is that holds no lbzoo checkpoint."""
    names: list[str] = []
    if not request.offline:
        names = hub_client.listing(request)[1]
    weights = sorted(n for n in names if n.endswith((".safetensors", ".bin", ".h5", ".keras", ".npy", ".pt", ".onnx")))
    if is_bert(config):
        kind = "a Hugging Face BERT without model.safetensors, the only form of its weights that can run no code"
    elif config is not None and ("model_type" in config or "architectures" in config):
        kind = f"a Hugging Face Transformers checkpoint (model_type {brief(config.get('model_type', 'not given'))})"
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
        f"model.safetensors) nor a BERT in safetensors. Received: {shown or 'no list of files'}. "
        "`lbzoo list` shows the names that load; `lbzoo convert` makes a checkpoint folder from a known release."
    )


def _nothing_to_try(entry: Entry, where: places.Cache, offline: bool) -> DownloadError:
    if offline:
        return DownloadError(
            f"{entry.name} is not cached and the network is switched off (offline). Tried: {where.hub}. Received: no "
            f"complete copy there. Run `lbzoo download {entry.name}` with the network on, or set LBZOO_CACHE to a "
            "cache that has it.",
            code="offline",
        )
    return DownloadError(
        f"{entry.name} is not published yet, so no request was made. Tried: {where.hub}. Received: no copy there. "
        "A newer lbzoo may list it as published; `lbzoo list` shows what can be loaded now.",
        code="unpublished",
    )
