"""kill -9 at random moments: a run that is started again ends with the weights of one that nobody disturbed.

    python -m tests.kill_sweep --kills 20 --workers 1
    python -m tests.kill_sweep --kills 20 --workers 2
    python -m tests.kill_sweep --kills 20 --program pretrain_bert

Kills are aimed at a step, at a save, at the deletion of an old checkpoint and at the start; what was hit is read from
the run folder afterwards. Prints the seed, a line per kill and a verdict. Exit status 0 where weights, slots, states
and logs are equal, bit for bit with one worker, to 1e-6 with several; else 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Optional

from lbzoo import console

# what is trained, made small; BERT goes into its second phase halfway
SETTINGS = {
    "pretrain_mlstm": ("model.units=16", "model.embedding_dim=8", "save_every=2", "steps={steps}"),
    "pretrain_bert": (
        *("model.hidden_size=16", "model.intermediate_size=32", "model.num_hidden_layers=1", "save_every=2"),
        *("first.steps={half}", "second.steps={rest}"),
    ),
}
STEPS_PER_KILL = 20
KEPT = 2  # step folders; these runs have no held-out figures, so no best one beside them
KINDS = ("save", "delete", "step", "start")  # what kills are aimed at
PATIENCE = 600  # seconds in which a run must get on
TOLERANCE = 1e-6  # of several workers
LEFTOVER = re.compile(r"\.step-0*(\d+)\.(saving|deleting)")


class SweepError(Exception):
    """A run did something else than going on until it was killed."""


@dataclasses.dataclass
class Run:
    """A tiny training run in `folder`; `start` it as often as needed."""

    folder: Path
    workers: int
    steps: int
    program: str = "pretrain_mlstm"

    def command(self) -> list[str]:
        half = self.steps // 2
        given = [s.format(steps=self.steps, half=half, rest=self.steps - half) for s in SETTINGS[self.program]]
        settings = [part for setting in given for part in ("--set", setting)]
        train = [sys.executable, "-m", f"training.{self.program}", "--recipe", "tiny", "--run", str(self.folder)]
        if self.workers == 1:
            return train + settings
        gang = ["--workers", str(self.workers), "--restarts", "0", "--grace", "10", "--logs", f"{self.folder}.logs"]
        launch = [sys.executable, "-m", "training.launch", *gang, "--"]
        return launch + train + ["--strategy", "multiworker", *settings]

    @contextlib.contextmanager
    def start(self) -> Iterator[subprocess.Popen]:
        """A process that is ended with the block, if it is still there."""
        with open(f"{self.folder}.out", "ab") as out:
            process = subprocess.Popen(self.command(), stdout=out, stderr=out, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM if self.workers > 1 else signal.SIGKILL)
                process.wait()

    def finish(self) -> str:
        """Run until all steps are done; the last line, which has the checksum of the weights."""
        with self.start() as process:
            if process.wait(timeout=PATIENCE):
                raise SweepError(f"ended with {process.returncode}: {self.said()}")
        return self.said().splitlines()[-1]

    def said(self) -> str:
        return Path(f"{self.folder}.out").read_text(errors="replace").strip()[-2000:]

    def newest(self) -> int:
        """Step of the newest checkpoint; 0 where there is none."""
        return max(self.saved(), default=0)

    def saved(self) -> list[int]:
        return [int(name[5:]) for name in self.names() if name.startswith("step-")]

    def leftovers(self) -> dict[str, int]:
        """Step of each folder that was being written or deleted."""
        return {name: int(found.group(1)) for name in self.names() if (found := LEFTOVER.match(name))}

    def names(self) -> list[str]:
        return os.listdir(self.folder) if self.folder.exists() else []


def wait_until(process: subprocess.Popen, run: Run, condition: Callable[[], bool], poll: float) -> None:
    """Poll `condition`; a run that ends meanwhile raises SweepError."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            raise SweepError(f"ended with {process.returncode} before the kill: {run.said()}")
        if time.monotonic() > limit:
            raise SweepError(f"did not get on for {PATIENCE} seconds: {run.said()}")
        time.sleep(poll)


def wait_for_moment(process: subprocess.Popen, run: Run, kind: str, step: int, rng: random.Random) -> None:
    """Return at a random moment of that kind after `step`."""
    wait_until(process, run, lambda: run.newest() >= step, 0.001)
    if kind == "step":
        time.sleep(rng.uniform(0, 0.05))
    elif kind == "save":
        wait_until(process, run, lambda: any(".saving-" in name for name in run.names()), 0)
        time.sleep(rng.uniform(0, 0.1))
    else:
        wait_until(process, run, lambda: deleting(run.names()), 0)
        time.sleep(rng.choice((0, rng.uniform(0, 0.0005))))


def deleting(names: Sequence[str]) -> bool:
    """Whether a checkpoint is being deleted, or will be next."""
    return sum(name.startswith("step-") for name in names) > KEPT or any(".deleting" in name for name in names)


def victims(process: subprocess.Popen, workers: int, rng: random.Random) -> dict[str, int]:
    """Process ids of those to kill by name: the run itself, or any worker, or all of them at once."""
    if workers == 1:
        return {"": process.pid}
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    pids = {f"worker {number}": int(pid) for number, pid in enumerate(children)}
    chosen = rng.choice([*pids, "all workers"])
    return pids if chosen == "all workers" else {chosen: pids.get(chosen, process.pid)}


def hit(run: Run, before: dict[str, int], started: bool) -> tuple[str, str]:
    """What was hit, in a word and in words, as the folder shows it; `before` were the leftovers of an earlier kill."""
    for name, step in run.leftovers().items():
        if name in before:
            continue
        if "deleting" in name:
            return "delete", f"in the delete of step {step}, {len(os.listdir(run.folder / name))} files left of it"
        return "save", f"in the save of step {step}, {len(os.listdir(run.folder / name))} files written"
    if not started:
        return "start", "while it started"
    if len(run.saved()) > KEPT:
        return "delete", f"between the save of step {run.newest()} and the delete of step {min(run.saved())}"
    return "step", f"in the steps after {run.newest()}"


def kill_once(run: Run, kind: str, step: int, rng: random.Random, start: float) -> tuple[str, str, float]:
    """Start the run and kill it; what was hit in a word and in words, and how long a start took (0 if not seen)."""
    begun, before, at = time.monotonic(), run.leftovers(), run.newest()
    with run.start() as process:
        if kind == "start":
            time.sleep(rng.uniform(0, start))
        else:
            wait_until(process, run, lambda: run.newest() > at, 0.005)
            start = time.monotonic() - begun
            wait_for_moment(process, run, kind, max(step, at + 1), rng)
        chosen = victims(process, run.workers, rng)
        for pid in chosen.values():
            os.kill(pid, signal.SIGKILL)
        status = process.wait(timeout=PATIENCE)
        if status == 0:
            raise SweepError(f"ended before it was killed: {run.said()}")
    word, words = hit(run, before, run.newest() > at)
    who = " and ".join(name for name in chosen if name)
    return word, f"{who} {words}".strip(), start


def show(line: str) -> None:
    print(line, flush=True)


def sweep(
    kills: int,
    workers: int,
    seed: int,
    folder: Path,
    say: Callable[[str], None] = show,
    program: str = "pretrain_mlstm",
) -> bool:
    """Kill a run so often, compare its end with an undisturbed one's; whether they are equal.

    Raises:
        SweepError: a run failed on its own.
    """
    rng = random.Random(seed)
    steps = STEPS_PER_KILL * (kills + 1)
    say(f"seed {seed}: {kills} kills, {workers} worker{'s' * (workers > 1)}, {steps} steps, a save every 2")
    begun = time.monotonic()
    whole, run = (Run(folder / name, workers, steps, program) for name in ("whole", "killed"))
    expected = whole.finish()
    start = (time.monotonic() - begun) / 2
    say(f"undisturbed: {expected}")
    kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
    rng.shuffle(kinds)
    count: collections.Counter = collections.Counter()
    for number, kind in enumerate(kinds):
        step = STEPS_PER_KILL * number + rng.randrange(STEPS_PER_KILL)
        word, words, start = kill_once(run, kind, step, rng, start)
        count[word] += 1
        say(f"kill {number + 1:>2}  {words}; complete: {', '.join(map(str, sorted(run.saved()))) or 'none'}")
    received = run.finish()
    say(f"killed:      {received}")
    faults = differences(whole, run, 0 if workers == 1 else TOLERANCE)
    hits = ", ".join(f"{count[kind]} in the {kind}" for kind in KINDS)
    equal = "bit for bit" if workers == 1 else f"to {TOLERANCE:g}"
    say(f"{kills} kills ({hits}): " + ("; ".join(faults) or f"weights, slots, states and logs are equal {equal}"))
    return not faults


def differences(first: Run, second: Run, tolerance: float) -> list[str]:
    """In which numbers of the last checkpoint and of the log the runs differ, in words."""
    console.import_tensorflow()
    import numpy as np
    import tensorflow as tf

    a, b = (tf.train.load_checkpoint(str(run.folder / f"step-{run.steps:08d}" / "state")) for run in (first, second))
    names = [name for name in a.get_variable_to_shape_map() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    if set(a.get_variable_to_shape_map()) != set(b.get_variable_to_shape_map()):
        return ["the checkpoints hold different variables"]
    faults = []
    for name in sorted(names):
        x, y = np.asarray(a.get_tensor(name)), np.asarray(b.get_tensor(name))
        if not np.all(np.isfinite(x)) or not np.all(np.abs(x - y) <= tolerance):
            faults.append(f"{name.split('/.ATTRIBUTES')[0]} differs by {np.max(np.abs(x - y)):.3g}")
    if not _logs_equal(_log(first), _log(second), 10 * tolerance):
        faults.append("log.csv differs")
    return faults


def _log(run: Run) -> list[dict[str, str]]:
    with open(run.folder / "log.csv", newline="") as file:
        return [{k: v for k, v in row.items() if not k.endswith("_per_second")} for row in csv.DictReader(file)]


def _logs_equal(first: list[dict[str, str]], second: list[dict[str, str]], tolerance: float) -> bool:
    if len(first) != len(second):
        return False
    return all(abs(float(row[k]) - float(other[k])) <= tolerance for row, other in zip(first, second) for k in row)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--program", choices=SETTINGS, default="pretrain_mlstm")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    options = parser.parse_args(arguments)
    if options.kills < 1 or options.workers < 1:
        parser.error("--kills and --workers are at least 1")
    with tempfile.TemporaryDirectory() as folder:
        try:
            equal = sweep(options.kills, options.workers, options.seed, Path(folder), program=options.program)
        except (SweepError, subprocess.TimeoutExpired) as error:
            print(f"kill_sweep: error: {error}", file=sys.stderr)
            return 1
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
