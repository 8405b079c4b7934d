"""Speed and memory of `training.prepare_reviews` on made-up reviews: `python -m benchmarks.prepare --gigabytes 2`.

Writes jsonl with Amazon's fields (about 500 characters a review, some twice), prepares it in a process of its own and
prints the rate for each core that the processes used, and the most memory that all of them held at one time: the
proportional set size of Linux, which counts a page that several share once. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

_SUBJECTS = ("this camera", "the battery", "my new kettle", "the second season", "this book", "the sound", "it")
_VERBS = ("is", "was", "seems", "turned out to be", "will never be", "can be")
_WORDS = (
    "a joy",
    "dull",
    "well made",
    "worth every penny",
    "broken",
    "far too loud",
    "good <br /> value",
    "caf\u00e9 &amp; bar",
)


def reviews(size: int, seed: int = 0) -> Iterator[str]:
    """Lines of jsonl until about `size` characters of text are out; one in fifty is an earlier one again."""
    rng = random.Random(seed)
    pool = [
        f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_WORDS)}, {rng.random()}. " for _ in range(20_000)
    ]
    written, again = 0, ""
    while written < size:
        start = rng.randrange(len(pool))
        text = "".join(pool[start : start + int(rng.expovariate(1 / 11)) + 1])
        line = json.dumps({"overall": 5.0, "summary": f"Review {rng.getrandbits(40)}", "reviewText": text}) + "\n"
        again = again or line
        written += len(text)
        yield line
        if rng.random() < 0.02:
            yield again
            again = ""


def memory(pid: int) -> int:
    """Bytes that a process and its children hold, shared pages counted once; 0 where the system does not tell."""
    total = 0
    for process in (pid, *_children(pid)):
        try:
            with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
        except OSError:
            continue  # it has just ended, or this is no Linux
    return total


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return [int(n) for thread in threads for n in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    except OSError:
        return []


def measure(path: Path, output: Path, workers: Optional[int]) -> tuple[float, float, int]:
    """(seconds, seconds of processors, most bytes of memory) of preparing `path`."""
    command = [sys.executable, "-m", "training.prepare_reviews", "--input", str(path), "--output", str(output)]
    command += ["--workers", str(workers)] if workers else []
    start, before, peak = time.perf_counter(), os.times(), 0
    process = subprocess.Popen(command)
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.1)
    seconds, after = time.perf_counter() - start, os.times()
    if process.returncode:
        raise SystemExit(process.returncode)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, spent, peak


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of text")
    parser.add_argument("--workers", type=int, help="as for prepare_reviews")
    parser.add_argument("--folder", type=Path, help="where three times as much fits (default: the system's)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path, output = Path(folder) / "reviews.jsonl", Path(folder) / "shards"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(reviews(int(options.gigabytes * 1e9)))
        seconds, spent, peak = measure(path, output, options.workers)
        index = json.loads((output / "index.json").read_text())
    text = index["bytes"] / 1e6
    print(f"{text:,.0f} MB of text, {index['documents']:,} documents, {index['duplicates']:,} duplicates left out")
    print(f"{seconds:.1f} s, {text / seconds:.1f} MB/s; {spent:.1f} s of processors, {text / spent:.1f} MB/s and core")
    print(f"at most {peak / 1e6:,.0f} MB of memory in all processes")


if __name__ == "__main__":
    main()
