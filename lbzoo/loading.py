"""`lbzoo.load`: a name of the manifest, a folder or a Hub repository -> a model, its bytes verified on the way.

What a string means depends on its form, not on what happens to lie in the current directory: a bare word is a name of
the manifest; with a `/` (or a leading `.` or `~`) it is a folder, and if there is none, `user/repo[@revision]` on the
Hub.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbzoo import registry
from lbzoo.errors import CheckpointError, DownloadError, UnknownModelError
from lbzoo.manifest import Entry, FileSpec

if TYPE_CHECKING:
    from lbzoo.models.mlstm import MLSTMLanguageModel

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?\Z", re.ASCII)
_CARD_FIELDS = (
    "description",
    "license",
    "training_data",
    "results",
    "sentiment_unit",
    "polarity",
    "status",
    "untested",
)


@dataclasses.dataclass(frozen=True)
class _Found:
    """A verified folder, and what is known about it besides its own files."""

    folder: Path
    name: str | None = None
    revision: str | None = None
    entry: Entry | None = None

    @property
    def expected_files(self) -> tuple[FileSpec, ...]:
        from lbzoo import hub

        return hub.stated_files(self.entry, self.folder) if self.entry else ()

    def card(self, own: dict[str, Any]) -> dict[str, Any]:
        """`card.json` over what the manifest says, under the name and revision that were really loaded."""
        known = _entry_card(self.entry) if self.entry else {}
        return {**known, **own, "name": self.name or own["name"], "revision": self.revision}


def load(
    name_or_folder: str | os.PathLike,
    weights: bool = True,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
) -> MLSTMLanguageModel:
    """Load a checkpoint.

    Args:
        name_or_folder: a name or alias that `lbzoo.list_models()` knows; a checkpoint folder, as a `Path` or as a
            string with a `/` in it (`"./mine"`); or a Hub repository, `"user/repo"` or `"user/repo@revision"`.
        weights: False gives random start values instead of the trained ones (seed 0), and for a name of the manifest
            reads and downloads nothing.
        cache: folder for downloads; None takes LBZOO_CACHE, else the Hub's own cache.
        offline: True makes no request; None takes HF_HUB_OFFLINE or LBZOO_OFFLINE.
        token: for the Hub; None takes the usual places.

    Returns:
        A `keras.Model` with `.config`, `.text` (the text policy's name) and `.card` (a dict, with name and revision).

    Raises:
        UnknownModelError: no such name; the message holds the closest ones.
        DownloadError: the files are not here and cannot be fetched.
        CheckpointError: a file is missing or changed, or a tensor does not fit.
    """
    from lbzoo import checkpoint

    if not isinstance(weights, bool):
        raise CheckpointError(f"weights must be True or False. Received: {weights!r}.")
    if not weights and not _is_path(name_or_folder):
        return _untrained(_entry(name_or_folder))
    found = _find(name_or_folder, cache, offline, token)
    model = checkpoint.load(found.folder, weights=weights, expected_files=found.expected_files)
    model.card = found.card(model.card)
    return model


def checkpoint_folder(
    name_or_folder: str | os.PathLike,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
) -> Path:
    """The local folder of a checkpoint, fetched if need be, every file verified; arguments and errors as in `load`."""
    from lbzoo import checkpoint

    found = _find(name_or_folder, cache, offline, token)
    checkpoint.verify(found.folder, found.expected_files)
    return found.folder


def _is_path(name_or_folder: Any) -> bool:
    if isinstance(name_or_folder, os.PathLike):
        return True
    if not isinstance(name_or_folder, str):
        return False
    separators = {"/", os.sep, os.altsep or "/"}
    return name_or_folder.startswith((".", "~")) or any(mark in name_or_folder for mark in separators)


def _find(name_or_folder: Any, cache: Any, offline: Any, token: Any) -> _Found:
    if not _is_path(name_or_folder):
        from lbzoo import hub

        entry = _entry(name_or_folder)
        folder = Path(hub.resolve(entry, cache=cache, offline=offline, token=token))
        return _Found(folder, entry.name, _revision(entry, folder), entry)
    folder = Path(name_or_folder).expanduser()
    text = os.fspath(name_or_folder)
    if folder.is_dir():
        return _Found(folder)
    if isinstance(name_or_folder, str) and _REPO.match(text):
        return _find_repo(text, cache, offline, token)
    raise CheckpointError(
        f"there is no checkpoint folder here. Received: {text[:200]!r}. A name that `lbzoo list` shows is written "
        "without a path, a Hub repository as user/repo."
    )


def _find_repo(name: str, cache: Any, offline: Any, token: Any) -> _Found:
    from lbzoo import hub

    try:
        found = hub.resolve_repo(name, cache=cache, offline=offline, token=token)
    except DownloadError as error:  # a mistyped folder looks like this, too
        note = f"There is no folder {name!r} here, so it was taken for a Hub repository."
        raise DownloadError(f"{error} {note}", error.code) from None
    return _Found(Path(found.folder), found.repo, found.revision)


def _entry(name: Any) -> Entry:
    try:
        return registry.find(name)
    except UnknownModelError as error:
        if isinstance(name, str) and name and Path(name).is_dir():
            raise UnknownModelError(
                f"{error} There is a folder of this name here; to load it, write './{name}'."
            ) from None
        raise


def _entry_card(entry: Entry) -> dict[str, Any]:
    values = entry.to_dict()
    return {key: values[key] for key in _CARD_FIELDS if values[key] is not None}


def _revision(entry: Entry, folder: Path) -> str | None:
    """The commit a folder in the cache was fetched at; its name ends in it. None for a bundled one."""
    for source in entry.sources:
        commit = getattr(source, "revision", None) or getattr(source, "commit", None)
        if commit and folder.name.endswith((commit, commit[:12])):
            return commit
    return None


def _untrained(entry: Entry) -> MLSTMLanguageModel:
    from lbzoo.models.mlstm import MLSTMLanguageModel

    card = {"name": entry.name, "revision": None, "description": f"random start values in the shape of {entry.name}"}
    return MLSTMLanguageModel(entry.config, text=entry.text, card=card)
