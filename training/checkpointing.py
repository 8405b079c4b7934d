"""Step folders that are complete or do not count.

    step-00001200/  data, index (tf.train.Checkpoint), COMMIT.json with step, config and every file's sha256

Written aside and renamed, COMMIT.json last. The newest complete one is restored; a damaged one is skipped, said aloud.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Optional

import tensorflow as tf

from lbzoo.errors import TrainingError
from lbzoo.files import replaced_folder, sha256_file

STEP = re.compile(r"step-(\d{8})$")


class Checkpoints:
    """Training checkpoints in a run folder.

    Args:
        folder: the run folder; step folders are made in it.
        objects: what is saved, for `tf.train.Checkpoint(**objects)`.
        keep: how many of the newest stay; at least 2, since the newest may turn out damaged.
    """

    def __init__(self, folder: Path, objects: dict[str, Any], keep: int = 2) -> None:
        if keep < 2:
            raise TrainingError(f"keep at least 2 checkpoints. Received: keep={keep}.")
        self.folder, self.keep = folder, keep
        self._checkpoint = tf.train.Checkpoint(**objects)

    def save(self, step: int, note: dict[str, Any]) -> Path:
        """Write the state after `step` steps; older folders beyond `keep` go once the new one stands."""
        final = self.folder / f"step-{step:08d}"
        try:
            with replaced_folder(final) as aside:
                self._checkpoint.write(str(aside / "state"))
                files = {path.name: sha256_file(path) for path in sorted(aside.iterdir())}
                commit = {"step": step, "files": files, **note}
                (aside / "COMMIT.json").write_text(json.dumps(commit, indent=1) + "\n")
        except (OSError, tf.errors.OpError) as error:
            raise TrainingError(
                f"could not save step {step} in {self.folder}: {error}. The last good checkpoint is intact; "
                f"make room or choose another --run folder, then start again."
            ) from error
        for old in self._step_folders()[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return final

    def restore(self) -> Optional[dict[str, Any]]:
        """Load the newest complete checkpoint; its COMMIT.json, or None where there is none."""
        for leftover in self.folder.glob(".step-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for folder in self._step_folders():
            try:
                commit = json.loads((folder / "COMMIT.json").read_text())
                changed = [name for name, sha in commit["files"].items() if sha256_file(folder / name) != sha]
                if changed:
                    raise ValueError(f"{', '.join(changed)} changed since it was written")
                status = self._checkpoint.read(str(folder / "state"))
                status.assert_existing_objects_matched()
            except (OSError, ValueError, KeyError, AssertionError, tf.errors.OpError) as error:
                print(f"skipping the damaged checkpoint {folder}: {error}", file=sys.stderr)
                continue
            return commit
        return None

    def _step_folders(self) -> list[Path]:
        """Newest first."""
        found = [path for path in self.folder.glob("step-*") if STEP.match(path.name)]
        return sorted(found, key=lambda path: path.name, reverse=True)
