"""How the training of the mLSTM scales, and what half precision gains: `python -m benchmarks.scaling`.

Measured here, at 1024 units, with the trainer, the strategy and the launcher of a run:
    two workers on a core each against one worker on one core, each with the same rows (weak scaling), where gradients
    travel in float32 and where they travel in bfloat16;
    one process on one core in bfloat16 against float32.
Calculated, by the model in benchmarks/step_time.py: the time of a step and the scaling of the published clusters,
beside what was published, and of the pair here, beside what was measured.

It takes about two minutes; nothing else may run meanwhile. The first core of the machine is the one worker's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from benchmarks.step_time import (
    FITTED_ON,
    PUBLISHED,
    Link,
    published_fixed,
    published_model,
    step_seconds,
    times_one,
    worst_error,
)

WANTED_PAIR, WANTED_PRECISION = 1.8, 1.6
LIMIT = 900  # seconds for one measurement: far more than it needs


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What each worker does in a step, and how many steps are timed."""

    units: int = 1024
    rows: int = 128
    window: int = 128
    steps: int = 7


@dataclasses.dataclass(frozen=True)
class Measured:
    """Steps of some workers.

    Attributes:
        workers: how many there were.
        seconds: of a step, the median; `characters`: that all of them read in it.
        bytes: of the gradient as it travels.
        link: between the workers, as the all-reduce alone found it; None for one.
    """

    workers: int
    seconds: float
    characters: int
    bytes: int
    link: Optional[Link]

    @property
    def rate(self) -> float:
        """Characters a second."""
        return self.characters / self.seconds


def measure(sizes: Sizes, workers: int, runs: Sequence[str]) -> list[Measured]:
    """Start `workers` processes on a core each; what they timed of each run, "PRECISION/DTYPE of the gradients"."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.one_worker", "--output", folder, "--runs", *runs]
        command += [part for name, n in dataclasses.asdict(sizes).items() for part in (f"--{name}", str(n))]
        if workers > 1:
            launch = f"-m training.launch --workers {workers} --restarts 0 --logs {folder}/logs --".split()
            command = [sys.executable, *launch, *command]
        alone = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
        told = [json.loads((Path(folder) / f"{i}-of-{workers}.json").read_text()) for i in range(workers)]
    return [summary(sizes, run, [worker[i] for worker in told]) for i, run in enumerate(runs)]


def summary(sizes: Sizes, run: str, told: list[dict]) -> Measured:
    """From what each worker told of one run: a step lasts as long as the slowest takes."""
    workers, size = len(told), told[0]["gradient"] * (4 if run.endswith("/float32") else 2)
    seconds = statistics.median(max(each) for each in zip(*(worker["seconds"] for worker in told)))
    link = None
    if workers > 1:
        message, whole = (max(worker[name] for worker in told) for name in ("message", "all_reduce"))
        turns = 2 * (workers - 1)
        link = Link(f"{workers} cores here", turns * size / workers / max(whole - message, 1e-9), message / turns)
    return Measured(workers, seconds, workers * sizes.rows * sizes.window, size, link)


def weak_scaling(one: Measured, pairs: Mapping[str, Measured]) -> None:
    """Print what a second worker brings; `pairs` by the dtype in which their gradients travel."""
    print("weak scaling, bfloat16, a core each")
    _print_rate("one worker", one)
    for reduce, pair in pairs.items():
        _print_rate(f"two, gradients in {reduce}", pair)
    for reduce, pair in pairs.items():
        _print_ratio(f"two over one, {reduce}", pair.rate / one.rate, WANTED_PAIR)


def precision(half: Measured, full: Measured) -> None:
    """Print what bfloat16 gains over float32."""
    print("precision, one process on one core")
    _print_rate("float32", full)
    _print_rate("bfloat16", half)
    _print_ratio("bfloat16 over float32", half.rate / full.rate, WANTED_PRECISION)


def time_model(units: int, one: Measured, pair: Measured) -> None:
    """Print the model beside what was published and measured."""
    fixed = published_fixed()
    print("time of a step = compute + fixed + ring all-reduce")
    print("   units  link            workers  s a step   times one: model  measured  published   error")
    for p in PUBLISHED:
        _print_row(p.units, p.link, p.workers, *published_model(p, fixed), None, p.times)
    link, work = pair.link, (pair.workers, one.seconds, pair.bytes, pair.link)
    _print_row(units, link, pair.workers, step_seconds(*work), times_one(*work), pair.rate / one.rate, None)
    errors = sorted(worst_error(p) for p in PUBLISHED)
    print(
        f"  published: fixed {fixed:.3f} s, fitted on {FITTED_ON.workers} workers of {FITTED_ON.units} units with "
        f"{FITTED_ON.link.name};\n    largest error {worst_error(FITTED_ON):+.1%}; fitted on another point, between "
        f"{errors[0]:+.1%} and {errors[-1]:+.1%}\n"
        f"  here: compute as measured, no fixed part; an all-reduce of {pair.bytes / 1e6:.1f} MB alone runs at\n"
        f"    {link.bandwidth / 1e9:.2f} GB/s, {link.latency * 1e3:.2f} ms a message; a step took {pair.seconds:.3f} s"
    )


def _print_rate(name: str, run: Measured) -> None:
    print(f"  {name:27s} {run.rate:9,.0f} characters/s   {run.seconds:.3f} s a step")


def _print_ratio(name: str, ratio: float, wanted: float) -> None:
    print(f"  {name:27s} {ratio:9.2f}   (aim: at least {wanted})")


def _print_row(
    units: int, link: Link, workers: int, seconds: float, times: float, here: Optional[float], public: Optional[float]
) -> None:
    measured, published = (f"{value:.2f}" if value else "-" for value in (here, public))
    error = times / (here or public) - 1
    print(
        f"  {units:6d}  {link.name:14s}  {workers:7d}  {seconds:8.3f}  {times:16.2f}  {measured:>8}  {published:>9}"
        f"  {error:+6.1%}"
    )


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--rows", type=int, default=Sizes.rows, help="of each worker")
    parser.add_argument("--window", type=int, default=Sizes.window, help="bytes that a row reads in a step")
    options = parser.parse_args(arguments)
    sizes = Sizes(16, 4, 8, 2) if options.quick else Sizes(rows=options.rows, window=options.window)
    print(f"{sizes.units} units, {sizes.rows} rows x {sizes.window} bytes a worker, one thread each", flush=True)
    half, full = measure(sizes, 1, ["mixed_bfloat16/float32", "float32/float32"])
    dtypes = ("float32", "bfloat16")
    pairs = dict(zip(dtypes, measure(sizes, 2, [f"mixed_bfloat16/{dtype}" for dtype in dtypes])))
    weak_scaling(half, pairs)
    precision(half, full)
    time_model(sizes.units, half, pairs["float32"])


if __name__ == "__main__":
    main()
