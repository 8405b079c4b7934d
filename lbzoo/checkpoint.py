"""Checkpoint folder <-> model.

    config.json          format, architecture, its sizes, text policy, dtype on disk, size and SHA-256 of the rest
    model.safetensors    the weights under our own names, float32 or float16
    vocab.txt            the word pieces, of a model that reads them
    card.json            what is known about them: data, results, licence, sentiment unit
    probe.json, probe.safetensors    optional: a linear classifier on the states
    classifier.json      optional: what weights and probe were fine-tuned to answer, see transfer/classifier_file

A folder is written beside its place and moved there whole; every file is verified each time it is read; `config.json`
picks one of the architectures in `CONFIGS` by name, and nothing in a folder is ever executed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbzoo.errors import CheckpointError
from lbzoo.files import brief, replaced_folder
from lbzoo.folder import (
    CARD,
    CLASSIFIER,
    CONFIG,
    FORMAT,
    MAX_JSON,
    PROBE,
    PROBE_WEIGHTS,
    VOCABULARY,
    WEIGHTS,
    VerifiedFolder,
    measure,
    read_folder,
    read_json,
    verify,
    while_still,
)
from lbzoo.models.build import build
from lbzoo.models.config import Config, architecture_of

__all__ = ["load", "load_card", "load_classifier", "load_probe", "measure", "read_folder", "save", "verify", "write"]

if TYPE_CHECKING:
    from lbzoo.models.base import ZooModel
    from lbzoo.text.vocabulary import Vocabulary
    from lbzoo.transfer.probe import Probe

OWN_FILES = (CONFIG, WEIGHTS, VOCABULARY, CARD, PROBE, PROBE_WEIGHTS, CLASSIFIER)
KEPT_FILES = ("README.md", "LICENSE", ".gitattributes")  # people's and the Hub's: carried over on replacement


def save(
    model: ZooModel,
    folder: str | os.PathLike,
    card: Mapping[str, Any] | None = None,
    probe: Probe | None = None,
    dtype: str = "float32",
    classifier: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint folder: aside first, read back and compared, then moved into place in one step.

    Args:
        model: weights, config, text policy and card.
        folder: where to. An lbzoo checkpoint that is there is replaced once the new one is complete; a folder with
            anything else in it is refused.
        card: JSON values about the weights; None takes the model's own.
        probe: linear classifier to ship with the weights.
        dtype: on disk, "float32" or "float16" (half the size; the model computes in float32 either way).
        classifier: JSON values for `classifier.json`.

    Returns:
        The folder.

    Raises:
        CheckpointError: a place that cannot be written or holds other files, a full disk, weights that are not finite
            or do not fit the dtype, a card that is not JSON. What was there before is still there.
    """
    return write(
        folder,
        config=model.config,
        text=model.text,
        tensors={name: variable.numpy() for name, variable in model.named_weights().items()},
        card=model.card if card is None else card,
        probe=probe,
        dtype=dtype,
        vocabulary=getattr(model, "vocabulary", None),
        classifier=classifier,
    )


def write(
    folder: str | os.PathLike,
    config: Config,
    text: str,
    tensors: Mapping[str, Any],
    card: Mapping[str, Any] | None = None,
    probe: Probe | None = None,
    dtype: str = "float32",
    vocabulary: Vocabulary | None = None,
    classifier: Mapping[str, Any] | None = None,
) -> Path:
    """`save` for weights that are in no model yet, such as a converter's.

    Args:
        tensors: name -> NumPy array of any layout, with the names and shapes of `config.shapes()`.
        vocabulary: word pieces, for an architecture that reads them.

    Raises:
        CheckpointError: see `save`; also tensors that are not those of `config`.
    """
    from lbzoo.tensors import write_tensors

    target = Path(os.path.realpath(folder))
    kept = require_replaceable(target)
    card = {key: value for key, value in (card or {}).items() if key != "revision"}  # of where it was loaded from
    written = {CARD: card} if classifier is None else {CARD: card, CLASSIFIER: classifier}
    values = {
        "format": FORMAT,
        "architecture": architecture_of(config),
        "config": config.to_dict(),
        "text": text,
        "dtype": dtype,
        "files": {},
    }
    try:
        with replaced_folder(target) as aside:
            for path in kept:
                shutil.copyfile(path, aside / path.name)  # not its mode: what is read-only cannot be synced
            write_tensors(aside / WEIGHTS, tensors, dtype)
            if vocabulary is not None:
                (aside / VOCABULARY).write_bytes(vocabulary.to_bytes())
            for name, inner in written.items():
                (aside / name).write_bytes(_json(inner, name.split(".")[0]))
            if probe is not None:
                probe.save(aside)
            for path in sorted(aside.iterdir()):
                if path.name not in KEPT_FILES:
                    spec = measure(path)
                    values["files"][path.name] = {"size": spec.size, "sha256": spec.sha256}
            (aside / CONFIG).write_bytes(_json(values, "config"))
            _read_back(aside, written, probe)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {folder} could not be written; what was there is unchanged. Received: "
            f"{error.strerror or error}. Free some space or choose another folder."
        ) from None
    return Path(folder)


def load(folder: str | os.PathLike | VerifiedFolder, weights: bool = True) -> ZooModel:
    """Read a checkpoint folder, every file verified, every tensor accounted for.

    Args:
        folder: what `save` wrote; what `verify` returned is not verified once more.
        weights: False builds the model with random start values and does not touch the weights file.

    Returns:
        The model, computing in the global Keras policy, with float32 variables and `.card`.

    Raises:
        CheckpointError: see `verify`; also a missing, unexpected, misshapen or mistyped tensor, by name.
    """
    if isinstance(folder, VerifiedFolder):
        return _read_model(folder, weights)
    skip = () if weights else (WEIGHTS,)
    return while_still(Path(folder), lambda: _read_model(verify(folder, skip=skip), weights))


def load_card(folder: str | os.PathLike | VerifiedFolder) -> dict[str, Any]:
    """`card.json` of a folder, verified, with a name; a card of a name only where there is none.

    Raises:
        CheckpointError: see `verify`; also a card that is no JSON object.
    """
    info = folder if isinstance(folder, VerifiedFolder) else verify(folder, skip=(WEIGHTS,))
    card = read_json(info.folder / CARD) if info.has(CARD) else {}
    if not isinstance(card, dict):
        raise CheckpointError(f"{info.folder / CARD} must be an object. Received: {brief(card)}.")
    if info.foreign is not None and info.foreign.skipped:  # tensors that no part of the model reads
        card["left_out"] = list(info.foreign.skipped)
    return {"name": info.folder.name, **card, "revision": None}


def load_probe(folder: str | os.PathLike | VerifiedFolder) -> Probe | None:
    """The probe that came with a checkpoint, its files verified, or None.

    Raises:
        CheckpointError: see `verify`; also a probe that does not fit the model's units.
    """
    if isinstance(folder, VerifiedFolder):
        return _read_probe(folder)
    return while_still(Path(folder), lambda: _read_probe(verify(folder, skip=(WEIGHTS,))))


def load_classifier(folder: str | os.PathLike | VerifiedFolder) -> Any:
    """The values of `classifier.json`, verified, or None where the folder has none.

    Raises:
        CheckpointError: see `verify`.
    """
    info = folder if isinstance(folder, VerifiedFolder) else verify(folder, skip=(WEIGHTS,))
    return read_json(info.folder / CLASSIFIER) if info.has(CLASSIFIER) else None


def _read_model(info: VerifiedFolder, weights: bool) -> ZooModel:
    model = build(info.config, info.text, load_card(info), info.vocabulary(), seed=None if weights else 0)
    if weights:
        variables = model.named_weights()
        for name, array in info.tensors():
            variables[name].assign(array.astype("float32", copy=False))
    return model


def _read_probe(info: VerifiedFolder) -> Probe | None:
    if not info.has(PROBE):
        return None
    from lbzoo.transfer.probe import Probe

    probe = Probe.load(info.folder)
    if probe.features != info.config.units:
        raise CheckpointError(
            f"{info.folder / PROBE} must weigh {info.config.units} units. Received: {probe.features}."
        )
    return probe


def _json(values: Mapping[str, Any], what: str) -> bytes:
    try:
        text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        data = text.encode("utf-8", "backslashreplace")  # half a character as JSON's own escape
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the {what} must hold JSON values only. Received: {error}.") from None
    if len(data) > MAX_JSON:
        raise CheckpointError(f"the {what} must be at most {MAX_JSON} bytes as JSON. Received: {len(data)}.")
    return data


def require_replaceable(target: Path) -> list[Path]:
    """CheckpointError where `target` is there and no checkpoint of ours; gives the files to carry over."""
    if not target.exists():
        return []
    if not target.is_dir():
        raise CheckpointError(f"a checkpoint is a folder. Received: {str(target)!r}, which is a file.")
    if target.samefile(os.curdir):
        raise CheckpointError("a checkpoint cannot take the place of the current directory. Name a folder inside it.")
    there = sorted(target.iterdir())
    own = {path.name for path in there if path.is_file()} & set(OWN_FILES)
    kept = [path for path in there if path.name in KEPT_FILES and path.is_file()]
    others = [path.name for path in there if path.name not in own and path not in kept]
    if others or (own and CONFIG not in own):
        names = ", ".join(others or sorted(own))
        raise CheckpointError(f"{target} holds other files than a checkpoint's. Received: {names}. Name a new folder.")
    if own:
        values = read_json(target / CONFIG)
        if not isinstance(values, dict) or "format" not in values:
            raise CheckpointError(f"{target} holds another library's model. Received: {CONFIG}. Name a new folder.")
    return kept


def require_writable(target: Path) -> None:
    """CheckpointError where no folder can be made at `target`, as far as trying it beside that place tells."""
    target = Path(os.path.realpath(target))
    there = next(folder for folder in target.parents if folder.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".lbzoo-", dir=there))
    except OSError as error:
        raise CheckpointError(
            f"a checkpoint cannot be written to {str(target)!r}. Received: {there}: {error.strerror or error}. "
            "Choose another folder."
        ) from None


def _read_back(folder: Path, written: Mapping[str, Any], probe: Probe | None) -> None:
    info = verify(folder)
    differs = any(read_json(folder / name) != json.loads(json.dumps(values)) for name, values in written.items())
    if differs or (probe is None) == info.has(PROBE):
        raise CheckpointError(f"{folder} reads back differently from what was written. Try another disk.")
    load_probe(info)
