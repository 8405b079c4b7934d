"""Steps of a training run, timed, on one core: what `benchmarks.scaling` starts once for each worker.

    python -m benchmarks.one_worker --units 1024 --rows 128 --window 128 --runs float32/float32 --output FOLDER

Under `python -m training.launch` it takes its place among the workers. Worker i of W pins itself to the i-th core that
it may use, computes with one thread, and writes FOLDER/I-of-W.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

REVIEW = 500  # bytes from one reset to the next, about a review


@dataclasses.dataclass(frozen=True)
class RandomBytes:
    """Takes the place of `training.data.ByteStream` where what is read does not matter."""

    rows: int
    window: int
    steps_per_epoch: int = 1

    def batch(self, step: int, rows: Optional[slice] = None) -> Any:
        """Bytes of `step` (training.data.Batch), [rows, window]."""
        from training.data import Batch

        rng = np.random.default_rng(step)
        ids = rng.integers(0, 256, (self.rows, self.window + 1), dtype=np.int32)
        reset = rng.random((self.rows, self.window)) < 1 / REVIEW
        own = slice(None) if rows is None else rows
        return Batch(ids[own, :-1], ids[own, 1:], reset[own], None)


def pin(index: int) -> None:
    """Stay on one core, where the system lets a process choose; a thread inherits it, so it comes before TensorFlow."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[index % len(cores)]})


def timed(step: Any, steps: int, warmup: int) -> list[float]:
    """Seconds of each of `steps` calls after `warmup`; `step` takes its number."""
    seconds = []
    for number in range(warmup + steps):
        start = time.perf_counter()
        step(number)
        seconds.append(time.perf_counter() - start)
    return seconds[warmup:]


def all_reduce(strategy: Any, shapes: Sequence[Sequence[int]], dtype: str, repeats: int) -> float:
    """Median seconds in which the workers sum tensors of `shapes`, as a step sums its gradients."""
    import tensorflow as tf

    def body() -> tf.Tensor:
        tensors = [tf.fill(shape, tf.constant(1, dtype)) for shape in shapes]
        total = tf.distribute.get_replica_context().all_reduce("sum", tensors)
        return tf.add_n([tf.reshape(t, [-1])[0] for t in total])

    run = tf.function(lambda: strategy.run(body))
    return statistics.median(timed(lambda _: float(strategy.experimental_local_results(run())[0]), repeats, warmup=2))


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="of each worker")
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--steps", type=int, default=8, help="to time, after two others")
    parser.add_argument("--runs", nargs="+", required=True, help="PRECISION/DTYPE, in which gradients travel")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    place = json.loads(os.environ.get("TF_CONFIG", "{}"))
    index, workers = (place["task"]["index"], len(place["cluster"]["worker"])) if place else (0, 1)
    pin(index)
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2")
    (options.output / f"{index}-of-{workers}.json").write_text(json.dumps(measure(options, workers)))


def measure(options: argparse.Namespace, workers: int) -> list[dict[str, Any]]:
    """What is written for each run: seconds of each step and, among several, of an all-reduce of the gradient alone."""
    import tensorflow as tf

    from training import cluster
    from training.recipes import recipe
    from training.settings import with_settings
    from training.trainer import Trainer

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    own = cluster.connect("multiworker" if workers > 1 else "none")
    rows, results = options.rows * workers, []
    for run in options.runs:
        precision, reduce = run.split("/")
        settings = {"model.units": options.units, "data.rows": rows, "data.window": options.window}
        settings.update({"precision": precision, "reduce_dtype": reduce, "sentiment_weight": 0})
        config = with_settings(recipe("reviews-512"), {name: str(value) for name, value in settings.items()})
        trainer = Trainer(config, RandomBytes(rows, options.window), own)
        shapes = [variable.shape for variable in trainer.update.variables]
        seconds = timed(lambda number, run=trainer: float(run.step(number)["loss"]), options.steps, warmup=2)
        results.append({"seconds": seconds, "gradient": sum(shape.num_elements() for shape in shapes)})
        if workers > 1:
            results[-1]["all_reduce"] = all_reduce(own.strategy, shapes, reduce, 4 * options.steps)
            results[-1]["message"] = all_reduce(own.strategy, [[1]], reduce, 4 * options.steps)
    return results


if __name__ == "__main__":
    main()
