"""How a run is watched: a progress line, log.csv, TensorBoard's events, a profile of a few steps.

log.csv      step, chars_per_second (or tokens) and the step's values; heldout.csv: step and the held-out figures
events/      the same for TensorBoard, where asked for: tensorboard --logdir RUN
profile/     what each operation took in a few steps, where asked for, for TensorBoard's profile plugin
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any, Mapping, Optional

import tensorflow as tf
from tqdm import tqdm

from lbzoo.errors import TrainingError
from lbzoo.files import replaced_file

LINE_SECONDS = 30  # between progress lines where no terminal shows a bar
PROFILE_AFTER, PROFILE_STEPS = 5, 5  # the first steps compile
# what the progress line shows of a step's values, and how
_SHOWN = {
    "bpc": "bpc {:.3f}",
    "masked_lm": "masked LM {:.3f}",
    "rate": "rate {:.2e}",
    "loss_scale": "loss scale {:g}",
    "skipped": "skipped {:g}",
}
_COUNTED = {"characters": "chars", "tokens": "tokens"}  # what a step reads, and its unit in the log


class Watch:
    """Logs of a run, in its folder, which exists.

    Args:
        folder, steps: the run's folder and its last step.
        every: steps between two lines of the log.
        tensorboard, profile: write events/ and profile/.
        writes: whether this process does anything of this; of several workers the chief does.
        counted: what a step reads, "characters" or "tokens"; one of its values has that name.
    """

    def __init__(
        self,
        folder: Path,
        steps: int,
        every: int = 20,
        tensorboard: bool = False,
        profile: bool = False,
        writes: bool = True,
        counted: str = "characters",
    ) -> None:
        self.folder, self.steps, self.every, self.writes = folder, steps, every, writes
        self._counted, self._unit = counted, _COUNTED[counted]
        self._tensorboard, self._profile = tensorboard and writes, profile and writes
        self._profiling = False
        self._events: Optional[tf.summary.SummaryWriter] = None

    def begin(self, start: int) -> Watch:
        """Go on after step `start`; for a `with` block. Rows of the logs beyond that step are dropped."""
        self._start, self._line_due = start, 0.0
        self._first: Optional[tuple[int, float]] = None  # step and time from which time left is estimated
        self._last_time, self._passed = time.monotonic(), 0
        self._bar = tqdm(total=self.steps, initial=start, unit="step", disable=None if self.writes else True)
        if self.writes:
            self._log = CsvLog(self.folder / "log.csv", start)
            self._held_out = CsvLog(self.folder / "heldout.csv", start)
        if self._tensorboard:
            self._events = tf.summary.create_file_writer(str(self.folder / "events"))
        return self

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()
        self._stop_profile()
        if self._events is not None:
            self._events.close()

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        """Step `step` is done; `values` are its scalar tensors, with what all workers read in it, see `counted`.

        Raises:
            TrainingError: the log cannot be written.
        """
        if not self.writes:
            return
        self._bar.update()
        self._passed += int(values[self._counted])
        self._first = self._first or (step, time.monotonic())  # the first step compiles
        if self._profile:
            self._profile_around(step)
        if step % self.every and step != self.steps:
            return
        now = time.monotonic()
        speed = f"{self._unit}_per_second"
        numbers = {speed: self._passed / (now - self._last_time)}
        numbers.update({name: float(value) for name, value in values.items() if name != self._counted})
        self._last_time, self._passed = now, 0
        self._log.write(step, {k: f"{v:.0f}" if k == speed else f"{v:.5g}" for k, v in numbers.items()})
        self._write_events(step, numbers)
        self._show(step, numbers)

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        """Held-out figures after step `step`.

        Raises:
            TrainingError: the log cannot be written.
        """
        if not (self.writes and figures):
            return
        self._bar.clear()
        print(f"step {step}: " + ", ".join(f"{k} {v:.4f}" for k, v in figures.items()), flush=True)
        self._held_out.write(step, {k: f"{v:.5g}" for k, v in figures.items()})
        self._write_events(step, {f"heldout/{k}": v for k, v in figures.items()})

    def _show(self, step: int, numbers: Mapping[str, float]) -> None:
        parts = [shown.format(numbers[name]) for name, shown in _SHOWN.items() if name in numbers]
        parts.insert(2, f"{tqdm.format_sizeof(numbers[f'{self._unit}_per_second'])} {self._unit}/s")
        if not self._bar.disable:
            self._bar.set_postfix_str(", ".join(parts))
            return
        now = time.monotonic()
        if now < self._line_due and step != self.steps:
            return
        self._line_due = now + LINE_SECONDS
        first, at = self._first
        if step > first:
            parts.append(f"{tqdm.format_interval((now - at) / (step - first) * (self.steps - step))} left")
        print(f"step {step} of {self.steps}: " + ", ".join(parts), file=sys.stderr, flush=True)

    def _write_events(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._events is None:
            return
        try:
            with self._events.as_default():
                for name, value in numbers.items():
                    tf.summary.scalar(name, value, step)
            self._events.flush()
        except tf.errors.OpError as error:
            raise _unwritable(self.folder / "events", error) from error

    def _profile_around(self, step: int) -> None:
        done = step - self._start
        if done == PROFILE_AFTER:
            tf.profiler.experimental.start(str(self.folder / "profile"))
            self._profiling = True
        elif done == PROFILE_AFTER + PROFILE_STEPS:
            self._stop_profile()

    def _stop_profile(self) -> None:
        if self._profiling:
            self._profiling = False
            tf.profiler.experimental.stop()


class CsvLog:
    """A table whose first column is the step.

    Rows beyond step `start` are dropped, and rows that were cut in the middle. A column that comes later is added.

    Raises:
        TrainingError: the file cannot be read or written.
    """

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._columns: list[str] = []
        if not path.exists():
            return
        lines = self._read()
        self._columns = lines[0] if lines else []
        kept = [line for line in lines[1:] if len(line) == len(self._columns) and _step(line) <= start]
        if len(kept) < len(lines) - 1:
            self._replace(kept)

    def write(self, step: int, values: Mapping[str, str]) -> None:
        """Add a row; a value that it lacks stays empty."""
        row = {"step": str(step), **values}
        fresh = [name for name in row if name not in self._columns]
        if fresh:
            rows = self._read()[1:] if self._columns else []
            self._columns = self._columns + fresh
            self._replace([line + [""] * len(fresh) for line in rows])
        try:
            with open(self._path, "a", newline="") as file:
                csv.writer(file).writerow([row.get(name, "") for name in self._columns])
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _read(self) -> list[list[str]]:
        try:
            with open(self._path, newline="", errors="replace") as file:
                return list(csv.reader(file))
        except (OSError, csv.Error) as error:
            raise TrainingError(f"{self._path} cannot be read: {error}. Remove it, then start again.") from error

    def _replace(self, rows: list[list[str]]) -> None:
        try:
            with replaced_file(self._path) as aside, open(aside, "w", newline="") as file:
                csv.writer(file).writerows([self._columns, *rows])
        except OSError as error:
            raise _unwritable(self._path, error) from error


def _step(line: list[str]) -> float:
    return int(line[0]) if line[0].isdigit() else float("inf")


def _unwritable(path: Path, error: Exception) -> TrainingError:
    return TrainingError(
        f"could not write {path}: {' '.join(str(error).split())}. The last good checkpoint is intact; make room or "
        f"choose another --run folder, then start again."
    )
