"""What the machine can do: matrix products and reading memory, measured beside whatever is compared with it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Tuple

import tensorflow as tf


def best_seconds(run: Callable[[], object], repeats: int = 5, warmup: int = 2) -> float:
    """Shortest wall time of `run` in `repeats` calls after `warmup`: what is left when nothing disturbs it."""
    for _ in range(warmup):
        run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def in_turn(
    runs: Mapping[str, Callable[[Any], Any]], blocks: Sequence[Any], clock: Callable[[], float] = time.perf_counter
) -> Tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Every run on every block of work, one run after another on a block: what disturbs one disturbs all.

    Returns:
        (seconds of `clock` by run, a number for each block; results by run).
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    results: dict[str, list[Any]] = {name: [] for name in runs}
    for block in blocks:
        for name, run in runs.items():
            start = clock()
            result = run(block)
            seconds[name].append(clock() - start)
            results[name].append(result)
    return seconds, results


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Of what was measured in turn: the median over blocks of one over the other."""
    return statistics.median(a / b for a, b in zip(above, below))


def gemm_rate(dtype: tf.DType, size: int = 2048) -> float:
    """Floating-point operations a second of a square matrix product in `dtype`."""
    a, b = (tf.cast(tf.random.stateless_normal([size, size], [1, seed]), dtype) for seed in (2, 3))
    product = tf.function(lambda: tf.matmul(a, b)[0, 0])
    return 2 * size**3 / best_seconds(lambda: float(product()), repeats=10)


def memory_rate(megabytes: int = 512) -> float:
    """Bytes a second of reading float32 memory once, as a matrix-vector product does."""
    rows = megabytes * (1 << 20) // (4 * 16384)
    matrix, vector = tf.ones([rows, 16384]), tf.ones([1, rows])
    product = tf.function(lambda: tf.matmul(vector, matrix)[0, 0])
    return rows * 16384 * 4 / best_seconds(lambda: float(product()), repeats=10)


def processor() -> str:
    """Name and the matrix instructions of the processor, where the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return "unknown processor"
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{name}, {sum(line.startswith('processor') for line in lines)} cores, {' '.join(known)}"
