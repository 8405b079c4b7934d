"""Fine-tuning of a checkpoint on SST and IMDB train against the probe on the frozen checkpoint.

    python -m training.finetune_reviews --model mlstm-1024-reviews --data DATA --task sst imdb --seeds 3 --test

Dev chooses the probe's C, the learning rate and the epoch. IMDB has none: its dev is the 4 % of train that the bundled
checkpoints never saw, for their training read the rest of train with its labels, and SST train. Without --test no test
split is read. --rows N trains on N texts of train, for a first look in minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from lbzoo.console import import_tensorflow
from lbzoo.errors import LbzooError
from lbzoo.text.clean import encode
from lbzoo.transfer.probe import Probe, fit_probe
from lbzoo.transfer.reviews import SPLITS, evaluate, read_task
from training.sources import IMDB_HELD_OUT, share, task_folder

Texts = tuple[list, list]


def train_and_dev(task: str, data: Path, rows: Optional[int], seed: int = 0) -> tuple[Texts, Texts]:
    """(texts, labels) of train, of `rows` texts where a number is given, and of dev."""
    texts, labels = read_task(task, data / task_folder(task), "train")
    if task == "imdb":
        unseen = np.array([share(encode(text, "reviews")) < IMDB_HELD_OUT for text in texts])
        kept, held = np.flatnonzero(~unseen), np.flatnonzero(unseen)
        dev = [texts[i] for i in held], [labels[i] for i in held]
    else:
        kept, dev = np.arange(len(labels)), read_task(task, data / task_folder(task), "dev")
    if rows is not None:
        kept = np.random.default_rng(seed).permutation(kept)[:rows]
    return ([texts[i] for i in kept], [labels[i] for i in kept]), dev


def frozen_probe(model: str, train: Texts, dev: Texts) -> Probe:
    """OpenAI's protocol: the cell state after the last byte, an L1 penalty, C by accuracy on dev."""
    from lbzoo.features import FeatureExtractor

    extractor = FeatureExtractor(model)
    return fit_probe(extractor.transform(train[0]), train[1], extractor.transform(dev[0]), dev[1])


def measure(task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of one task, in percent; test is read only where it is asked for."""
    from lbzoo.features import FeatureExtractor
    from lbzoo.transfer.classifier import TextClassifier

    train, dev = train_and_dev(task, options.data, options.rows)
    test = read_task(task, options.data / task_folder(task), "test") if options.test else None
    probe = frozen_probe(options.model, train, dev)
    found: dict[str, Any] = {
        "task": task,
        "model": options.model,
        "train_rows": len(train[0]),
        "dev_rows": len(dev[0]),
        "frozen": {"dev": 100 * probe.dev_accuracy[probe.C], "C": probe.C},
        "runs": [],
    }
    best: dict[float, list[Any]] = {}
    for rate in options.learning_rates:
        for seed in range(1, options.seeds + 1):
            start = time.monotonic()
            classifier = TextClassifier(options.model, learning_rate=rate, random_state=seed, **settings(options))
            classifier.fit(*train, validation_data=dev)
            run = {
                "learning_rate": rate,
                "seed": seed,
                "dev": 100 * classifier.history_[classifier.best_epoch_]["held_out_accuracy"],
                "epoch": classifier.best_epoch_,
                "minutes": round((time.monotonic() - start) / 60, 2),
                "history": classifier.history_,
            }
            found["runs"].append(run)
            best.setdefault(rate, []).append((run, classifier))
            print(f"{task} rate {rate:g} seed {seed}: dev {run['dev']:.2f}, epoch {run['epoch']}", flush=True)
    chosen = max(best, key=lambda rate: np.mean([run["dev"] for run, _ in best[rate]]))
    found["tuned"] = {"learning_rate": chosen, "dev": [run["dev"] for run, _ in best[chosen]]}
    if test is not None:
        features = FeatureExtractor(options.model).transform(test[0])
        found["frozen"]["test"] = 100 * probe.score(features, test[1])
        found["tuned"]["test"] = [100 * evaluate(classifier, *test) for _, classifier in best[chosen]]
    return found


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Those of `TextClassifier` that were given."""
    names = ("epochs", "batch_size", "unfreeze", "window", "language_model_weight", "dropout", "dtype")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def row(found: dict[str, Any]) -> str:
    """A row of a markdown table: task, texts, split, frozen probe, fine-tuned (median, lowest to highest)."""
    split = "test" if "test" in found["tuned"] else "dev"
    values = found["tuned"][split]
    spread = f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f}, {len(values)} seeds)"
    return f"| {found['task']} | {found['train_rows']} | {split} | {found['frozen'][split]:.2f} | {spread} |"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where data or model are not what they have to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name or folder of a checkpoint")
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the review sets")
    parser.add_argument("--task", nargs="+", choices=tuple(SPLITS), default=["sst", "imdb"])
    parser.add_argument("--rows", type=int, help="train on so many texts only")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each learning rate")
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[1e-4, 3e-4], help="to choose from on dev")
    for name in ("epochs", "batch-size", "window"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("language-model-weight", "dropout"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--unfreeze", choices=("gradual", "all"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--output", type=Path, help="write every figure as JSON")
    parser.add_argument("--test", action="store_true", help="measure the chosen rate on the test split, once")
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("--data FOLDER, or LBZOO_DATA, says where the review sets are")
    import_tensorflow()
    try:
        results = [measure(task, options) for task in options.task]
    except (LbzooError, OSError) as error:
        print(f"finetune_reviews: error: {error}", file=sys.stderr)
        return 1
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("| task | train texts | measured on | frozen probe | fine-tuned |")
    print("| --- | --- | --- | --- | --- |")
    print("\n".join(map(row, results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
