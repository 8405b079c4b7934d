"""What `lbzoo verify` checks: every byte, every tensor, and for OpenAI's weights the values that others measured.

A row says what was checked, what was expected and what was received; nothing here trusts a file's name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from lbzoo import cache as places
from lbzoo import hub, registry
from lbzoo.errors import CheckpointError, LbzooError
from lbzoo.folder import FolderInfo, measure, read_folder
from lbzoo.manifest import Entry, FileSpec

OPENAI_MODEL = "mlstm-4096-amazon"
GAIN_TOLERANCE = 1e-5
FEATURE_TOLERANCE = 1e-3
# the cell state after the last byte, no tanh: first and last units, from a rerun of the released weights on
# TensorFlow 2.14 (demo.ipynb of github.com/vinhphuphan/replication-of-generating-reviews-discovering-sentiment)
GOLDEN_TEXT = "I couldn't figure out"
GOLDEN_FEATURES = {
    0: -0.12958607,
    1: -0.7414904,
    2: 0.06320151,
    4093: 0.12817441,
    4094: 0.07800514,
    4095: 0.14032531,
}
# issue 21 of github.com/openai/generating-reviews-discovering-sentiment
GOLDEN_UNIT = 2388
GOLDEN_UNIT_VALUES = {
    "it was a nice day": 0.012658,
    "it was a great day": 0.371533,
    "it was a bad day": -0.499269,
    "It was a wonderful day": 0.503395,
    "It was an excellent day": 0.44557,
    "It was a super excellent day": 0.623401,
    "It was such a bad bad day ": -0.858701,
    "It was such a bad bad bad day": -1.04497,
}


@dataclasses.dataclass(frozen=True)
class Check:
    """One row of the table."""

    check: str
    expected: str
    received: str
    ok: bool


def verify_entry(
    entry_or_folder: Entry | str | os.PathLike,
    cache: str | os.PathLike | None = None,
    offline: bool | None = None,
    token: str | bool | None = None,
) -> list[Check]:
    """Check a checkpoint; one of the manifest that is not on this machine is fetched first, unless offline.

    Args:
        entry_or_folder: an entry of the manifest, or a checkpoint folder (bundled, cached or a user's own).

    Returns:
        The rows. For `mlstm-4096-amazon` they include features, which need TensorFlow.

    Raises:
        DownloadError: it is not here and cannot be fetched, or what is here is changed and cannot be fetched again.
        CheckpointError: a folder without a readable `config.json`.
    """
    name, specs = None, []
    if isinstance(entry_or_folder, Entry):
        found = hub.resolve(entry_or_folder, cache=cache, offline=offline, token=token)
        name, info = found.name, found.verified
        specs = [found.config_file] if found.config_file else []
        if info.foreign:
            specs = list(entry_or_folder.files)
    else:
        info = read_folder(entry_or_folder)
        if info.foreign:  # whose hashes nobody states
            specs = [FileSpec(name) for name in hub.HF_FILES if (info.folder / name).is_file()]
    rows = list(_file_rows(info.folder, [*specs, *info.files]))
    if all(row.ok for row in rows):
        rows.append(_tensor_row(info))
    if all(row.ok for row in rows) and name == OPENAI_MODEL:
        rows += openai_checks(_gains(info), _features_of(info.folder))
    return rows


def verify_all(
    cache: str | os.PathLike | None = None, offline: bool | None = None
) -> dict[str, list[Check] | LbzooError]:
    """Check every checkpoint that is bundled or cached here; a name's value is its rows, or the error that ended them.

    Cached `user/repo` repositories are among them, at the commits they were loaded at.
    """
    found: dict[str, list[Check] | LbzooError] = {}
    for name in registry.list_models():
        entry = registry.find(name)
        if hub.is_here(entry, cache):
            found[name] = _rows_or_error(lambda entry=entry: verify_entry(entry, cache, offline))
    known = {getattr(source, "repo", None) for entry in registry.entries() for source in entry.sources}
    for record in places.records(places.locate(cache)):
        repo, revision = record.get("repo"), record.get("revision")
        if isinstance(repo, str) and isinstance(revision, str) and repo not in known:
            at = f"{repo}@{revision}"
            found[at] = _rows_or_error(
                lambda at=at: verify_entry(hub.resolve_repo(at, cache=cache, offline=offline).folder)
            )
    return found


def openai_checks(gains: Mapping[str, np.ndarray], features_of: Callable[[list[str]], np.ndarray]) -> Iterator[Check]:
    """The values by which anyone can tell that OpenAI's weights are in place and computed as OpenAI did.

    Args:
        gains: `gmx` and `gmh`, float32 [n]. Only their product matters to the model, so training kept them equal.
        features_of: texts -> float32 [texts, n], the raw cell state after the last byte.
    """
    distance = float(np.max(np.abs(gains["gmx"] - gains["gmh"])))
    yield Check("gmx equals gmh", f"within {GAIN_TOLERANCE:g}", f"{distance:.2g} apart", distance <= GAIN_TOLERANCE)
    texts = [GOLDEN_TEXT, *GOLDEN_UNIT_VALUES]
    values = np.asarray(features_of(texts))
    for unit, expected in GOLDEN_FEATURES.items():
        yield _near(f"feature {unit} of {GOLDEN_TEXT!r}", expected, values[0, unit])
    for row, (text, expected) in enumerate(GOLDEN_UNIT_VALUES.items(), 1):
        yield _near(f"unit {GOLDEN_UNIT} of {text!r}", expected, values[row, GOLDEN_UNIT])


def _near(check: str, expected: float, received: float) -> Check:
    near = abs(float(received) - expected) <= FEATURE_TOLERANCE  # False for NaN
    return Check(check, f"{expected:+.6f} within {FEATURE_TOLERANCE:g}", f"{float(received):+.6f}", near)


def _file_rows(folder: Path, specs: Sequence[FileSpec]) -> Iterator[Check]:
    for spec in specs:
        path = folder / spec.path
        expected = f"{spec.size} bytes, sha256 {(spec.sha256 or 'not known')[:12]}"
        try:
            measured = measure(path)
        except OSError as error:
            yield Check(spec.path, expected, f"cannot be read: {error.strerror}", False)
            continue
        same = (spec.size in (None, measured.size)) and (spec.sha256 in (None, measured.sha256))
        yield Check(spec.path, expected, f"{measured.size} bytes, sha256 {str(measured.sha256)[:12]}", same)


def _tensor_row(info: FolderInfo) -> Check:
    expected = f"{len(info.config.shapes())} tensors, {info.dtype}"
    try:
        info.check_tensors()
    except CheckpointError as error:
        return Check("names, shapes, dtype", expected, str(error), False)
    return Check("names, shapes, dtype", expected, expected, True)


def _gains(info: FolderInfo) -> dict[str, np.ndarray]:
    return {name: array for name, array in info.tensors() if name in ("gmx", "gmh")}


def _features_of(folder: Path) -> Callable[[list[str]], np.ndarray]:
    def features(texts: list[str]) -> np.ndarray:
        from lbzoo import checkpoint
        from lbzoo.features import FeatureExtractor

        extractor = FeatureExtractor(checkpoint.load(folder), state="cell", pool="last", tanh=False)
        return np.asarray(extractor.transform(texts))

    return features


def _rows_or_error(action: Callable[[], list[Check]]) -> list[Check] | LbzooError:
    try:
        return action()
    except LbzooError as error:
        return error
