"""Step folders that are complete or do not count.

    step-00001200/  data, index (tf.train.Checkpoint), COMMIT.json with step, loss, held-out figures, config and the
                    sha256 of every file

Written aside, COMMIT.json last, forced to disk, then renamed; renamed away before it is deleted. So a process that is
killed at any moment leaves complete folders, and leftovers whose names begin with a dot. The newest complete one is
restored; a damaged one is skipped, said aloud.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Mapping, Optional

import tensorflow as tf

from lbzoo.errors import TrainingError
from lbzoo.files import replaced_folder, sha256_file
from training.cluster import Cluster

STEP = re.compile(r"step-(\d{8,})$")
COMMIT = "COMMIT.json"
SPARE = 1 << 20  # bytes beside the numbers themselves: index, COMMIT.json, the folder


class Checkpoints:
    """Training checkpoints in a run folder.

    Args:
        folder: the run folder; step folders are made in it.
        objects: what is saved, for `tf.train.Checkpoint(**objects)`: nests of variables and optimizers.
        keep: how many of the newest stay; at least 2, since the newest may turn out damaged.
        best: name of the held-out figure whose lowest value keeps its checkpoint as well.
        writes: whether this process changes the folder. Of several workers that share it only the chief does; the
            others call `save` as it does, and nothing is written.

    Raises:
        TrainingError: keep < 2.
    """

    def __init__(
        self, folder: Path, objects: Mapping[str, Any], keep: int = 2, best: str = "bpc", writes: bool = True
    ) -> None:
        if keep < 2:
            raise TrainingError(f"keep at least 2 checkpoints. Received: keep={keep}.")
        self.folder, self.keep, self.best, self.writes = folder, keep, best, writes
        self._checkpoint = tf.train.Checkpoint(**objects)
        self._bytes = _size(objects) + SPARE
        self._damaged: list[Path] = []

    def save(self, step: int, note: Mapping[str, Any]) -> Path:
        """Write the state after `step` steps; what is no longer kept goes once the new folder stands.

        Args:
            note: for COMMIT.json; "figures" holds held-out figures by name, where the step has some.

        Raises:
            TrainingError: no room, or the folder cannot be written; what was saved before is as it was.
        """
        final = self.folder / f"step-{step:08d}"
        if not self.writes:
            return final
        try:
            self._require_room()
            with replaced_folder(final) as aside:
                self._checkpoint.write(str(aside / "state"))
                files = {path.name: sha256_file(path) for path in sorted(aside.iterdir())}
                commit = {"step": step, "files": files, **note}
                (aside / COMMIT).write_text(json.dumps(commit, indent=1) + "\n")
        except (OSError, tf.errors.OpError) as error:
            raise TrainingError(
                f"could not save step {step} in {self.folder}: {_line(error)}. The last good checkpoint is intact; "
                f"make room or choose another --run folder, then start again."
            ) from error
        self._clear(final)
        return final

    def restore(self, best: bool = False) -> Optional[dict[str, Any]]:
        """Load the newest complete checkpoint, or the best; its COMMIT.json, or None where there is none.

        Raises:
            TrainingError: there are some, and every one is damaged or does not fit.
        """
        if self.writes:
            self._remove_leftovers()
        folders, self._damaged = self._by_figure() if best else self._step_folders(), []
        for folder in folders:
            try:
                return self._load(folder)
            except (OSError, ValueError, AssertionError, tf.errors.OpError) as error:
                print(f"skipping the damaged checkpoint {folder}: {_line(error)}", file=sys.stderr)
                self._damaged.append(folder)
        if folders:
            raise TrainingError(
                f"none of the {len(folders)} checkpoints in {self.folder} can be restored. Choose another --run "
                f"folder (--set init_from=FOLDER starts from an exported checkpoint's weights), or delete them to "
                f"start from nothing."
            )
        return None

    def measured(self) -> bool:
        """Whether a checkpoint has the held-out figure by which the best one is chosen."""
        return bool(self._by_figure())

    def require_room(self) -> None:
        """Raises TrainingError where the next checkpoint would not fit; a run that starts asks this first."""
        if not self.writes:
            return
        try:
            self._require_room()
        except OSError as error:
            raise TrainingError(f"{self.folder} cannot be saved in: {error}. Make room, then start again.") from error

    def _load(self, folder: Path) -> dict[str, Any]:
        commit = read_commit(folder)
        changed = [name for name, sha in commit["files"].items() if sha256_file(folder / name) != sha]
        if changed:
            raise ValueError(f"{', '.join(changed)} changed since it was written")
        self._checkpoint.read(str(folder / "state")).assert_existing_objects_matched()
        return commit

    def _require_room(self) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < self._bytes:
            raise OSError(f"a checkpoint takes {self._bytes:,} bytes, {free:,} are free there")

    def _clear(self, newest: Path) -> None:
        """Delete what is no longer kept: old folders, and those that `restore` found damaged."""
        damaged = [folder for folder in self._damaged if folder != newest]
        sound = [folder for folder in self._step_folders() if folder not in damaged]
        for folder in (*damaged, *(set(sound[self.keep :]) - set(self._by_figure()[:1]))):
            aside = folder.with_name(f".{folder.name}.deleting")
            try:
                folder.rename(aside)
            except OSError:  # the next save tries again
                continue
            shutil.rmtree(aside, ignore_errors=True)
        self._damaged = []

    def _remove_leftovers(self) -> None:
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _step_folders(self) -> list[Path]:
        """Newest first."""
        found = [path for path in self.folder.glob("step-*") if STEP.match(path.name)]
        return sorted(found, key=_step, reverse=True)

    def _by_figure(self) -> list[Path]:
        """Those with a held-out figure that is a number, lowest first, the newest of equal ones first."""
        figures = {}
        for folder in self._step_folders():
            try:
                figure = float(read_commit(folder).get("figures", {}).get(self.best, math.nan))
            except (OSError, ValueError, TypeError, AttributeError):
                continue
            if math.isfinite(figure):
                figures[folder] = figure
        return sorted(figures, key=figures.__getitem__)


class AgreedCheckpoints(Checkpoints):
    """Checkpoints that all workers of a cluster restore and its chief writes; all call `save` and `restore`."""

    def __init__(self, folder: Path, objects: Mapping[str, Any], cluster: Cluster, **options: Any) -> None:
        super().__init__(folder, objects, writes=cluster.chief, **options)
        self._cluster = cluster

    def restore(self, best: bool = False) -> Optional[dict[str, Any]]:
        """See `Checkpoints.restore`; raises TrainingError also where the workers find different ones."""
        commit = super().restore(best)
        self._cluster.agreed(commit["step"] if commit else 0, "the checkpoint that they found")
        return commit


def read_commit(folder: Path) -> dict[str, Any]:
    """What COMMIT.json of a step folder holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is cut, or is not one of ours.
    """
    commit = json.loads((folder / COMMIT).read_bytes())
    if not (isinstance(commit, dict) and isinstance(commit.get("files"), dict) and isinstance(commit.get("step"), int)):
        raise ValueError(f"{COMMIT} lacks the step or the files")
    return commit


def _line(error: Exception) -> str:
    """Its message, without TensorFlow's names for where it happened."""
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", " ".join(str(error).split()))


def _step(folder: Path) -> int:
    return int(STEP.match(folder.name).group(1))


def _size(objects: Mapping[str, Any]) -> int:
    """Bytes of all variables; an optimizer lists its own."""
    variables = [v for item in tf.nest.flatten(objects) for v in getattr(item, "weights", [item])]
    return sum(v.shape.num_elements() * v.dtype.size for v in variables)
