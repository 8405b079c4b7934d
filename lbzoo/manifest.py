"""`checkpoints_manifest.json` -> frozen entries: the schema, and one clear ManifestError for each way to break it.

The manifest is data only. It names no code, its paths are relative with known suffixes, and a file without a hash is
allowed only where the source is still to be published or is a Hub repository whose own hash is checked instead.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, ClassVar, Union

from lbzoo.errors import ConfigError, ManifestError
from lbzoo.fields import Fields
from lbzoo.files import CHECKPOINT_SUFFIXES, SHA1, SHA256, brief, parse_json, unsafe_path
from lbzoo.models.config import CONFIGS, TEXTS, Config, architecture_of

SCHEMA = 1
MAX_BYTES = 4 << 20
MAX_FILE_SIZE = 1 << 36
STATUSES = ("tested", "untested here")
METRICS = {  # and the largest value of each
    "accuracy": 100,
    "bpc": 8,
    "f1": 100,
    "masked-lm accuracy": 100,
    "masked-lm loss": 20,
    "matthews": 1,
    "next-sentence accuracy": 100,
    "pearson": 1,
    "spearman": 1,
}
CORRELATIONS = ("matthews", "pearson", "spearman")
NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*\Z")
REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*/[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\Z")


@dataclasses.dataclass(frozen=True)
class FileSpec:
    """A file of a checkpoint: its path in the folder, bytes and SHA-256 (None where nobody has seen them yet)."""

    path: str
    size: int | None = None
    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class ReleaseFile:
    """A file of an original release. `sha1` is git's blob hash, which covers the length; `sha256` where known."""

    path: str
    sha1: str
    size: int | None = None
    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class BundledSource:
    """The folder `lbzoo/bundled/<name>` of the installed package."""

    kind: ClassVar[str] = "bundled"


@dataclasses.dataclass(frozen=True)
class HubSource:
    """A Hugging Face Hub repository at one commit; `revision` may be None only while `published` is False."""

    repo: str
    revision: str | None
    published: bool
    kind: ClassVar[str] = "hub"


@dataclasses.dataclass(frozen=True)
class OpenAIRelease:
    """OpenAI's `model/N.npy` files in a public GitHub repository at one commit, converted once into our folder."""

    repo: str
    commit: str
    license: str
    files: tuple[ReleaseFile, ...]
    kind: ClassVar[str] = "openai-release"

    def url(self, path: str) -> str:
        """Where a file of the release is downloaded."""
        return f"https://raw.githubusercontent.com/{self.repo}/{self.commit}/{path}"


Source = Union[BundledSource, HubSource, OpenAIRelease]


@dataclasses.dataclass(frozen=True)
class Result:
    """A figure: `source` is "ours" (then `command` gives it) or "published" (then `reference` says where)."""

    dataset: str
    split: str
    metric: str
    value: float
    source: str
    command: str | None = None
    reference: str | None = None
    note: str | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    """One checkpoint of the manifest; `print(entry)` is what `lbzoo info` shows.

    `files` is empty where the folder is made on this machine from an original release and has no published form yet.
    """

    name: str
    description: str
    architecture: str
    config: Config
    text: str
    sources: tuple[Source, ...]
    files: tuple[FileSpec, ...]
    license: str
    training_data: str
    results: tuple[Result, ...]
    status: str
    aliases: tuple[str, ...] = ()
    sentiment_unit: int | None = None
    polarity: int | None = None
    untested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """Bytes of the checkpoint folder, or None where a file's size is not known."""
        sizes = [file.size for file in self.files]
        return sum(sizes) if sizes and None not in sizes else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values in the manifest's own shape, for JSON."""
        values = dataclasses.asdict(self)
        values["sources"] = [{"kind": s.kind, **dataclasses.asdict(s)} for s in self.sources]
        values["files"] = {f.path: {"size": f.size, "sha256": f.sha256} for f in self.files}
        return json.loads(json.dumps(values))

    def __str__(self) -> str:
        from lbzoo.registry import describe

        return describe(self)


def read_manifest(path: str | os.PathLike) -> tuple[Entry, ...]:
    """Read and validate a manifest file.

    Raises:
        ManifestError: unreadable, not strict JSON, or against the schema; names the faulty field.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"the manifest {path} cannot be read: {error.strerror}.") from None
    return parse_manifest(data, where=os.path.basename(path))


def parse_manifest(data: bytes, where: str = "checkpoints_manifest.json") -> tuple[Entry, ...]:
    """Validate the bytes of a manifest; see `read_manifest`."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{where} must be at most {MAX_BYTES} bytes. Received: more.")
    try:
        values = parse_json(data)
    except ValueError as error:
        raise ManifestError(f"{where} cannot be parsed: {error}. Received: {len(data)} bytes.") from None
    if not isinstance(values, dict):
        raise ManifestError(f"{where} must be an object. Received: {brief(values)}.")
    schema = values.get("schema")
    if type(schema) is not int or schema != SCHEMA:  # before anything else: another schema may have other fields
        raise ManifestError(
            f"{where}: schema must be {SCHEMA}. Received: {brief(schema)}. A newer one needs a newer lbzoo."
        )
    fields = Fields(values, where, ManifestError)
    fields.take("schema")
    entries = tuple(_entry(Fields(item, where, ManifestError, trail)) for item, trail in fields.items("checkpoints"))
    fields.finish()
    _require_unique_names(entries, where)
    return entries


def _entry(fields: Fields) -> Entry:
    name = fields.text("name", NAME, "lower-case words and numbers joined by - _ or .")
    if unsafe_path(name, ("",)):
        raise fields.fault(fields.path("name"), "must be a name that every file system takes", name)
    config = _config(fields)
    sources = tuple(_source(Fields(item, fields.where, ManifestError, at)) for item, at in fields.items("sources"))
    if not sources:
        raise fields.fault(fields.path("sources"), "must name at least one source", [])
    if len({repr(source) for source in sources}) < len(sources):
        raise fields.fault(fields.path("sources"), "must not repeat a source", [source.kind for source in sources])
    unit = fields.optional(fields.integer, "sentiment_unit", 0, config.units - 1)
    polarity = fields.choice("polarity", (1, -1)) if fields.has("polarity") else None
    if (unit is None) != (polarity is None):
        raise fields.fault(fields.path("polarity"), "must stand together with sentiment_unit", polarity)
    entry = Entry(
        name=name,
        description=fields.text("description"),
        architecture=fields.choice("architecture", CONFIGS),
        config=config,
        text=fields.choice("text", TEXTS[architecture_of(config)]),
        sources=sources,
        files=_files(fields, sources),
        license=fields.text("license"),
        training_data=fields.text("training_data"),
        results=tuple(_result(Fields(item, fields.where, ManifestError, at)) for item, at in fields.items("results")),
        status=fields.choice("status", STATUSES),
        aliases=fields.texts("aliases", NAME, "lower-case words and numbers joined by - _ or ."),
        sentiment_unit=unit,
        polarity=polarity,
        untested=fields.texts("untested"),
        notes=fields.texts("notes"),
    )
    if (entry.status == "tested") == bool(entry.untested):
        raise fields.fault(fields.path("untested"), "must say what is untested here, and only then", entry.untested)
    fields.finish()
    return entry


def _config(fields: Fields) -> Config:
    kind = CONFIGS[fields.choice("architecture", CONFIGS)]
    values = fields.take("config")
    try:
        return kind.from_dict(values)
    except ConfigError as error:
        raise ManifestError(f"{fields.where}: {fields.path('config')}: {error}") from None


def _source(fields: Fields) -> Source:
    kind = fields.choice("kind", ("bundled", "hub", "openai-release"))
    source: Source
    if kind == "bundled":
        source = BundledSource()
    elif kind == "hub":
        published = fields.choice("published", (True, False))
        repo = fields.text("repo", REPO, "owner/name")
        pinned = published or fields.has("revision")  # a commit is known only once there is one
        source = HubSource(repo, fields.digest("revision", SHA1) if pinned else None, published)
    else:
        source = OpenAIRelease(
            repo=fields.text("repo", REPO, "owner/name"),
            commit=fields.digest("commit", SHA1),
            license=fields.text("license"),
            files=_release_files(fields),
        )
    fields.finish()
    return source


def _release_files(fields: Fields) -> tuple[ReleaseFile, ...]:
    found = []
    for item, trail in fields.items("files"):
        inner = Fields(item, fields.where, ManifestError, trail)
        path = inner.take("path")
        _require_safe(inner, "path", path, (".npy",))
        size = inner.optional(inner.integer, "size", 1, MAX_FILE_SIZE)
        sha256 = inner.optional(inner.digest, "sha256", SHA256)
        found.append(ReleaseFile(path, inner.digest("sha1", SHA1), size, sha256))
        inner.finish()
    _require_distinct_paths(fields, [file.path for file in found])
    return tuple(found)


def _files(fields: Fields, sources: tuple[Source, ...]) -> tuple[FileSpec, ...]:
    group, found = fields.fields("files"), []
    bundled = any(isinstance(source, BundledSource) for source in sources)
    for path in group.values:
        _require_safe(group, path, path, CHECKPOINT_SUFFIXES)
        inner = group.fields(path)
        if bundled:
            spec = FileSpec(path, inner.integer("size", 1, MAX_FILE_SIZE), inner.digest("sha256", SHA256))
        else:
            size = inner.optional(inner.integer, "size", 1, MAX_FILE_SIZE)
            spec = FileSpec(path, size, inner.optional(inner.digest, "sha256", SHA256))
        inner.finish()
        found.append(spec)
    _require_distinct_paths(fields, list(group.values))
    served = bundled or any(isinstance(source, HubSource) and source.published for source in sources)
    if (served or found) and not {"config.json", "model.safetensors"} <= set(group.values):
        raise fields.fault(fields.path("files"), "must name config.json and model.safetensors", list(group.values))
    return tuple(found)


def _require_safe(fields: Fields, key: str, path: Any, suffixes: tuple[str, ...]) -> None:
    reason = unsafe_path(path, suffixes)
    if reason:
        raise fields.fault(fields.path(key), reason, path)


def _require_distinct_paths(fields: Fields, paths: list[str]) -> None:
    if not paths and isinstance(fields.values["files"], list):
        raise fields.fault(fields.path("files"), "must name at least one file", paths)
    seen: dict[str, str] = {}
    for path in paths:  # some file systems do not tell A from a
        if path.casefold() in seen:
            raise fields.fault(fields.path("files"), f"must not repeat {seen[path.casefold()]}", path)
        seen[path.casefold()] = path


def _result(fields: Fields) -> Result:
    source = fields.choice("source", ("ours", "published"))
    metric = fields.choice("metric", METRICS)
    result = Result(
        dataset=fields.text("dataset"),
        split=fields.text("split"),
        metric=metric,
        value=fields.number("value", -1 if metric in CORRELATIONS else 0, METRICS[metric]),
        source=source,
        command=fields.text("command") if source == "ours" else None,
        reference=fields.text("reference") if source == "published" else None,
        note=fields.optional(fields.text, "note"),
    )
    fields.finish()
    return result


def _require_unique_names(entries: tuple[Entry, ...], where: str) -> None:
    owners: dict[str, int] = {}
    for i, entry in enumerate(entries):
        for name in (entry.name, *entry.aliases):
            if name in owners:
                raise ManifestError(
                    f"{where}: checkpoints[{i}] must not take a name or alias that checkpoints[{owners[name]}] has. "
                    f"Received: {brief(name)}."
                )
            owners[name] = i
