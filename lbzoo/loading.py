"""`lbzoo.load`: a name of the manifest, a folder or a Hub repository -> a model, its bytes verified on the way.

What a string means depends on its form, not on what happens to lie in the current directory: a bare word is a name of
the manifest; with a `/` (or a leading `.` or `~`) it is a folder, and if there is none, `user/repo[@revision]` on the
Hub.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbzoo import registry
from lbzoo.errors import CheckpointError, DownloadError, UnknownModelError
from lbzoo.folder import CONFIG
from lbzoo.manifest import Entry

if TYPE_CHECKING:
    from lbzoo.hub import Located
    from lbzoo.models.base import ZooModel

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


def load(
    name_or_folder: str | os.PathLike,
    weights: bool = True,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
) -> ZooModel:
    """Load a checkpoint.

    Args:
        name_or_folder: a name or alias that `lbzoo.list_models()` knows; a checkpoint folder, as a `Path` or as a
            string with a `/` in it (`"./mine"`); or a Hub repository, `"user/repo"` or `"user/repo@revision"`. Folder
            and repository may also be a Hugging Face BERT's, in safetensors, which is read as it is.
        weights: False gives random start values instead of the trained ones (seed 0), and for a name of the manifest
            reads and downloads nothing.
        cache: folder for downloads; None takes LBZOO_CACHE, else the Hub's own cache.
        offline: True makes no request; None takes HF_HUB_OFFLINE or LBZOO_OFFLINE.
        token: for the Hub; None takes the usual places.

    Returns:
        A `keras.Model` with `.config`, `.text` (how a text is prepared, by name) and `.card` (a dict, with name and
        revision).

    Raises:
        UnknownModelError: no such name; the message holds the closest ones.
        DownloadError: the files are not here and cannot be fetched.
        CheckpointError: a file is missing or changed, or a tensor does not fit.
    """
    if not isinstance(weights, bool):
        raise CheckpointError(f"weights must be True or False. Received: {weights!r}.")
    if not weights and not is_path(name_or_folder):
        return _untrained(_entry(name_or_folder))
    return load_with_folder(name_or_folder, weights, cache=cache, offline=offline, token=token)[0]


def load_with_folder(name_or_folder: str | os.PathLike, weights: bool = True, **options: Any) -> tuple[ZooModel, Path]:
    """The model, as `load` gives it, and the folder it was read from, where a probe may lie beside the weights."""
    from lbzoo import checkpoint

    found = _find(name_or_folder, **options)
    if isinstance(found, Path):
        return checkpoint.load(found, weights=weights), found
    model = checkpoint.load(found.verified, weights=weights)
    model.card = {**_known(name_or_folder), **model.card, "name": found.name, "revision": found.revision}
    return model, found.folder


def checkpoint_folder(
    name_or_folder: str | os.PathLike,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
) -> Path:
    """The local folder of a checkpoint, fetched if need be, every file verified; arguments and errors as in `load`."""
    from lbzoo import checkpoint

    found = _find(name_or_folder, cache=cache, offline=offline, token=token)
    return checkpoint.verify(found).folder if isinstance(found, Path) else found.folder


def is_path(name_or_folder: Any) -> bool:
    """Whether it is meant as a folder or a Hub repository, and not as a name of the manifest."""
    if isinstance(name_or_folder, os.PathLike):
        return True
    if not isinstance(name_or_folder, str):
        return False
    separators = {"/", os.sep, os.altsep or "/"}
    return name_or_folder.startswith((".", "~")) or any(mark in name_or_folder for mark in separators)


def typed_model(word: str) -> str:
    """What a command takes for a model, as the library takes it; checked as far as it can be without reading it.

    A bare word that no checkpoint of the zoo has may be a checkpoint folder in the current directory, such as the one
    that `lbzoo finetune --output my-model` wrote. A name of the zoo is never taken for a folder.

    Raises:
        UnknownModelError: a bare word that is neither.
    """
    if not is_path(word):
        try:
            registry.find(word)
        except UnknownModelError:
            if not (Path(word) / CONFIG).is_file():
                raise
            return os.path.join(os.curdir, word)
    return word


def _find(name_or_folder: Any, **options: Any) -> Path | Located:
    """A folder of the user's own, unverified, or a checkpoint of the zoo, verified."""
    from lbzoo import hub

    if not is_path(name_or_folder):
        return hub.resolve(_entry(name_or_folder), **options)
    folder = Path(os.path.expanduser(name_or_folder))  # Path.expanduser raises for a user that nobody knows
    if folder.is_dir():
        return folder
    if isinstance(name_or_folder, str) and hub.is_repo_name(name_or_folder):
        try:
            return hub.resolve_repo(name_or_folder, **options)
        except DownloadError as error:  # a mistyped folder looks like this, too
            note = f"There is no folder {name_or_folder!r} here, so it was taken for a Hub repository."
            raise DownloadError(f"{error} {note}", error.code) from None
    raise CheckpointError(
        f"there is no checkpoint folder here. Received: {str(name_or_folder)[:200]!r}. A name that `lbzoo list` shows "
        "is written without a path, a Hub repository as user/repo."
    )


def _entry(name: Any) -> Entry:
    try:
        return registry.find(name)
    except UnknownModelError as error:
        if isinstance(name, str) and name and Path(name).is_dir():
            raise UnknownModelError(
                f"{error} There is a folder of this name here; to load it, write './{name}'."
            ) from None
        raise


def _known(name_or_folder: Any) -> dict[str, Any]:
    """What the manifest says of a checkpoint; its own card, where it has one, stands above it."""
    if is_path(name_or_folder):
        return {}
    values = registry.find(name_or_folder).to_dict()
    return {key: values[key] for key in _CARD_FIELDS if values[key] is not None}


def _untrained(entry: Entry) -> ZooModel:
    from lbzoo.models.build import build

    card = {"name": entry.name, "revision": None, "description": f"random start values in the shape of {entry.name}"}
    return build(entry.config, entry.text, card, seed=0)
