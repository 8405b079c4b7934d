"""The outer loop, visible at a glance: batch -> update -> log -> evaluate -> save -> stop."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.files import replaced_file
from training.checkpointing import Checkpoints
from training.cluster import Cluster
from training.watch import Watch

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

RESUME_EXIT = 75  # the run was asked to stop, saved, and can be started again
SKIP_LIMIT = 10
FREE = {"save_every", "evaluate_every"}  # settings that a resumed run may change: they decide no weight


@dataclasses.dataclass(frozen=True)
class End:
    """Where a run ended: the last step, its loss, and whether all steps are done."""

    step: int
    loss: float
    complete: bool


def run(
    folder: Path,
    config: Mapping[str, Any],
    steps: int,
    checkpoints: Checkpoints,
    watch: Watch,
    step_function: Callable[[int], Mapping[str, Any]],
    evaluate: Optional[Callable[[], Mapping[str, float]]],
    check: Callable[[int], None],
    save_every: int,
    evaluate_every: int,
    minutes: Optional[float] = None,
    accept_changes: bool = False,
    cluster: Optional[Cluster] = None,
    best: bool = False,
) -> End:
    """Train from the newest checkpoint in `folder` to `steps`, or for `minutes`.

    All workers of `cluster` run this together; when one of them is asked to stop, all stop after the same step.

    Args:
        step_function: does step t and returns scalar tensors by name, "characters" among them.
        evaluate: held-out figures by name; None where there is nothing to measure on.
        check: called after each step with the limit of skipped steps in a row; raises when it is reached.
        accept_changes: go on under another configuration than the one that `folder` was started with.
        best: the best checkpoint by a held-out figure will be asked for at the end.

    Returns:
        How it ended; not complete if it stopped early (time, SIGTERM), saved.

    Raises:
        ConfigError: `best`, where nothing was measured and nothing can be.
        TrainingError: the folder belongs to another configuration, another run is going on in it, none of its
            checkpoints can be restored, a checkpoint cannot be written, or too many steps were skipped.
    """
    cluster = cluster or Cluster()
    folder.mkdir(parents=True, exist_ok=True)
    changed = _changes(folder / "config.json", config)
    if changed and not accept_changes:
        raise TrainingError(
            f"{folder} holds a run with another configuration: {', '.join(changed)} differ. Choose another --run "
            f"folder, delete that one, or say --accept-changes to go on from its last checkpoint under this one."
        )
    if best and evaluate is None and not checkpoints.measured():  # told before the training, not after it
        raise ConfigError(
            f"--best chooses by figures on held-out text. Received: none, and no checkpoint in {folder} with any. "
            "Leave --best out, or give shards with a split 'valid'; for an mLSTM --data does as well."
        )
    commit = checkpoints.restore()
    if watch.writes:
        with replaced_file(folder / "config.json") as aside:
            aside.write_text(json.dumps(config, indent=1) + "\n")
    checkpoints.require_room()
    start, loss = (commit["step"], commit["loss"]) if commit else (0, float("nan"))
    deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
    with _alone(folder, watch.writes), watch.begin(start), _stop_flag() as asked:
        for step in range(start + 1, steps + 1):
            values = step_function(step - 1)
            check(SKIP_LIMIT)
            watch.step(step, values)
            figures = evaluate() if evaluate and (step % evaluate_every == 0 or step == steps) else {}
            watch.figures(step, figures)
            stop = cluster.any(bool(asked) or time.monotonic() > deadline)
            if step % save_every == 0 or step == steps or stop:
                loss = float(values["loss"])
                checkpoints.save(step, {"loss": loss, "figures": dict(figures), "config": dict(config)})
            if stop and step < steps:
                print(f"stopped after step {step} of {steps}; start again to go on", file=sys.stderr)
                return End(step, loss, complete=False)
    return End(steps, loss, complete=True)


@contextlib.contextmanager
def _alone(folder: Path, writes: bool) -> Iterator[None]:
    """One run at a time writes into a folder; the system opens the lock when the process ends, however it ends."""
    if fcntl is None or not writes:
        yield
        return
    with open(folder / ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"another run is going on in {folder}. Wait for its end or stop it, or choose another --run folder."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield


def _changes(path: Path, config: Mapping[str, Any]) -> list[str]:
    """Names of the settings in which the run that `path` describes differs; none where there is no such run."""
    if not path.exists():
        return []
    try:
        old = dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise TrainingError(
            f"{path} is damaged, so that nothing says what the run beside it computed: {error}. Choose another --run "
            f"folder; or delete that file, and its checkpoints go on under the settings that you give."
        ) from error
    return [k for k in sorted((set(old) | set(config)) - FREE) if old.get(k) != config.get(k)]


@contextlib.contextmanager
def _stop_flag() -> Iterator[list[int]]:
    """Becomes non-empty on SIGTERM or SIGINT: finish the step, save, stop. Afterwards they do what they did before."""
    asked: list[int] = []
    before = {n: signal.signal(n, lambda got, _: asked.append(got)) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
