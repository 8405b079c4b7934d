"""Names -> entries of `checkpoints_manifest.json`: list, info, find, and what to say about a name nobody knows."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lbzoo.errors import ManifestError, UnknownModelError
from lbzoo.manifest import BundledSource, Entry, HubSource, Source, read_manifest
from lbzoo.text.clean import POLICIES
from lbzoo.text.vocabulary import READINGS

DEFAULT_MODEL = "mlstm-1024-reviews"
MASKED_LM_MODEL = "bert-mini-reviews"  # of `lbzoo fill-mask`
MANIFEST = "checkpoints_manifest.json"
PACKAGE = Path(__file__).resolve().parent
BUNDLED = PACKAGE / "bundled"


def manifest_path() -> Path:
    """Where the manifest lies: inside the package (an installed wheel), else at the root of the checkout.

    Raises:
        ManifestError: neither is there.
    """
    places = (PACKAGE / MANIFEST, PACKAGE.parent / MANIFEST)
    for place in places:
        if place.is_file():
            return place
    raise ManifestError(
        f"{MANIFEST} is missing. Received: nothing at {' or '.join(map(str, places))}. Install lbzoo again."
    )


@functools.lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """Every checkpoint of the manifest, in its order; read once a process."""
    return read_manifest(manifest_path())


def list_models(pattern: str = "*") -> list[str]:
    """Names of the checkpoints in natural order (`mlstm-512` before `mlstm-4096`).

    Args:
        pattern: shell wildcards (`*`, `?`, `[...]`), case ignored; a match of an alias counts.
    """
    if not isinstance(pattern, str):
        raise UnknownModelError(f"a pattern is a string such as 'mlstm-*'. Received: {pattern!r}.")
    wanted = re.compile(fnmatch.translate(pattern), re.IGNORECASE)
    found = [entry.name for entry in entries() if any(map(wanted.match, (entry.name, *entry.aliases)))]
    return sorted(found, key=lambda name: [(int(s), "") if s.isdigit() else (-1, s) for s in re.split(r"(\d+)", name)])


def find(name: str) -> Entry:
    """The entry of a name or alias.

    Raises:
        UnknownModelError: no such name; the message holds the closest ones.
    """
    for entry in entries():
        if name == entry.name or name in entry.aliases:
            return entry
    raise UnknownModelError(_unknown(name))


def info(name: str) -> Entry:
    """Source, size, licence, measured results and sentiment unit of a checkpoint; `print(lbzoo.info(name))`.

    Raises:
        UnknownModelError: see `find`.
    """
    return find(name)


def bundled_folder(entry: Entry) -> Path | None:
    """Folder of a checkpoint that ships inside the package, else None."""
    ships = any(isinstance(source, BundledSource) for source in entry.sources)
    return BUNDLED / entry.name if ships else None


def _unknown(name: Any) -> str:
    if not isinstance(name, str):
        return f"a checkpoint is named by a string. Received: {name!r} ({type(name).__name__})."
    owners = {known: entry.name for entry in entries() for known in (entry.name, *entry.aliases)}
    close = difflib.get_close_matches(name.strip().lower(), owners, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(dict.fromkeys(owners[c] for c in close))}?" if close else ""
    return f"there is no checkpoint of this name. Received: {name[:100]!r}.{hint} `lbzoo list` shows every name."


def describe(entry: Entry) -> str:
    """An entry as lines of text for people, at most 120 characters wide where the values allow it."""
    return "\n".join(_lines(entry))


def megabytes(size: int | None) -> str:
    """A number of bytes for people, in MB or kB."""
    return "not known yet" if size is None else f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _lines(entry: Entry) -> Iterator[str]:
    def row(label: str, value: Any) -> str:
        return f"{label:<16}{value}"

    yield entry.name + (f" (also {', '.join(entry.aliases)})" if entry.aliases else "")
    yield f"  {entry.description}"
    yield row(
        "architecture", f"{entry.architecture}: {', '.join(f'{k}={v}' for k, v in entry.config.to_dict().items())}"
    )
    yield row("text", f"{entry.text}: {_reading(entry.text)}")
    yield row("licence", entry.license)
    yield row("training data", entry.training_data)
    yield row("status", entry.status)
    if entry.sentiment_unit is not None:
        sign = "positive" if entry.polarity == 1 else "negative"
        yield row(
            "sentiment unit",
            f"{entry.sentiment_unit} of the cell state; polarity {entry.polarity:+d} (larger is {sign})",
        )
    for number, source in enumerate(entry.sources, 1):
        yield row(f"source {number}", _source_line(source))
        for file in getattr(source, "files", ()):
            yield f"  {file.path:<20}{_size(file.size):>20}  git blob {file.sha1}"
            if file.sha256:
                yield f"{'':44}sha256   {file.sha256}"
    if entry.files:
        yield row("files", f"{_size(entry.size)} in all")
        for file in entry.files:
            yield f"  {file.path:<20}{_size(file.size):>20}  sha256   {file.sha256 or 'not known yet'}"
    if entry.results:
        yield "results"
    for result in entry.results:
        origin = f"ours: {result.command}" if result.source == "ours" else f"published: {result.reference}"
        yield f"  {result.dataset} {result.split}, {result.metric} {result.value:g}  ({origin})"
        if result.note:
            yield f"    {result.note}"
    for item in entry.untested:
        yield row("untested here", item)
    for note in entry.notes:
        yield row("note", note)


def _reading(text: str) -> str:
    """How a text is prepared, in words."""
    if text in POLICIES:
        return POLICIES[text].description
    lowercase, policy = READINGS[text]
    first = f"{POLICIES[policy].description}, then " if policy else ""
    return f"{first}WordPiece, {'lower case and no accents' if lowercase else 'case and accents kept'}"


def _source_line(source: Source) -> str:
    if isinstance(source, BundledSource):
        return "bundled with lbzoo, no download"
    if isinstance(source, HubSource):
        state = f"at commit {source.revision}" if source.published else "not published yet, so no request is made"
        return f"Hugging Face Hub, {source.repo}, {state}"
    known = [file.size for file in source.files if file.size]
    more = "" if len(known) == len(source.files) else f", sizes known of {len(known)}"
    count = f"{len(source.files)} files{more}; {source.license}"
    return f"original release, github.com/{source.repo} at {source.commit} ({count})"


def _size(size: int | None) -> str:
    return "size not known" if size is None else f"{size:,} bytes"
