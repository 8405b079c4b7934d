"""What two workers do together, for `test_two_workers.py`; every worker runs this, the chief writes what it found.

    python -m training.launch --workers 2 -- python -m tests.two_workers FOLDER

FOLDER holds `shards`, and `resumed`: a run folder that one worker left behind.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from lbzoo.errors import TrainingError
from training.cluster import Cluster, connect
from training.evaluate import bits_per_character, read_out_accuracy
from training.recipes import recipe
from training.sample_reviews import documents
from training.trainer import Trainer, train

HALF = ("mixed_float16", "mixed_bfloat16")


def held_out(trainer: Trainer, cluster: Cluster) -> list[float]:
    """Bits per character and accuracy on a few texts, 7 stripes and 5 texts: what does not divide by two."""
    made = documents(40, seed=8)
    bits = bits_per_character(trainer.model.folded(), [d.text for d in made], rows=7, window=32, cluster=cluster)
    w, b = trainer.read_out.w.numpy(), float(trainer.read_out.b.numpy())
    few = made[:5]
    texts, positive = [d.text for d in few], [d.score > 0 for d in few]
    return [bits, read_out_accuracy(trainer.model.folded(), w, b, texts, positive, cluster)]


class Poisoned:
    """A stream whose last row is infinitely positive in one step: only the last worker's gradient is not finite."""

    def __init__(self, stream: Any, step: int) -> None:
        self._stream, self._step, self.steps_per_epoch = stream, step, stream.steps_per_epoch

    def batch(self, step: int, rows: slice):
        batch = self._stream.batch(step, rows)
        if step == self._step and rows.stop == self._stream.rows:
            batch.target[-1] = np.inf
        return batch


def one_bad_gradient(trainer: Trainer, cluster: Cluster) -> dict[str, Any]:
    """A step that the second worker spoils, and one more, after the 60 of the run."""
    trainer.stream = Poisoned(trainer.stream, step=60)
    numbers = [*trainer.update.variables, *trainer.update.optimizer.variables(), trainer.update.optimizer.learning_rate]

    def everything():
        return np.concatenate([v.numpy().ravel() for v in numbers])

    before = everything()
    trainer.step(60)
    changed = cluster.gather(float(np.sum(before != everything())))
    try:
        trainer.update.check(1)
        error = ""
    except TrainingError as raised:
        error = str(raised)
    trainer.step(61)
    differ = np.ptp(cluster.gather(everything()), axis=0).max()
    counts = [int(trainer.update.skipped.numpy()), int(trainer.update.optimizer.iterations.numpy())]
    return {"changed": changed.tolist(), "error": error, "differ": float(differ), "counts": counts}


def main() -> None:
    folder = Path(sys.argv[1])
    tf.config.experimental.enable_op_determinism()
    cluster = connect("multiworker", 60)
    tiny, shards = recipe("tiny"), folder / "shards"
    trainer, end = train(tiny, shards, folder / "resumed", None, None, cluster=cluster)
    found = {"float32": end.loss, "held out": held_out(trainer, cluster), "bad": one_bad_gradient(trainer, cluster)}
    for precision in HALF:
        config = dataclasses.replace(tiny, precision=precision)
        found[precision] = train(config, shards, folder / precision, None, None, cluster=cluster)[1].loss
    try:
        cluster.agreed(cluster.index * 10, "the step")
    except TrainingError as error:
        found["disagreement"] = str(error)
    if cluster.chief:
        (folder / "found.json").write_text(json.dumps(found))
    cluster.barrier()


if __name__ == "__main__":
    main()
