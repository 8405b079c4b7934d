"""Fine-tuning of a checkpoint on a GLUE task: median and spread over seeds on dev, and the leaderboard's files.

    python -m training.finetune_glue --model bert-minilm-l6 --task rte --seeds 5 --data GLUE --output runs/rte

All epochs are trained and dev is measured once, at the end; with --early-stopping dev chooses the epoch, with several
--learning-rates it chooses the rate, and the results say so. Test splits have no labels here: their answers, by the
seed that is best on dev, are written under the leaderboard's names. A run that has ended is kept in --output; started
again with the same options, the command goes on with the seed it was killed in.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from lbzoo.errors import ConfigError
from training import glue_output
from training.command import add_cluster_options, ended, on_cluster

if TYPE_CHECKING:
    from training.cluster import Cluster

LAMB_FACTOR = 10  # google-research/albert, optimization.py: LAMB at 3e-4 to 5e-4 where AdamW has 3e-5 to 5e-5
CONFIG = "config.json"


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="name or folder of a checkpoint")
    glue_output.add_data_options(parser, "folder of the results; go on in it where it exists")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each learning rate (default: 5)")
    parser.add_argument(
        "--learning-rates", nargs="+", type=float, help="several: dev chooses; default: the family's, times 10 for LAMB"
    )
    parser.add_argument("--optimizer", choices=("adamw", "lamb"), default="adamw")
    parser.add_argument("--weight-decay", type=float, default=0.01, help="not of layer norms and biases (default: .01)")
    parser.add_argument("--warmup", type=float, default=0.1, help="share of the steps (default: .1)")
    parser.add_argument("--clip-norm", type=float, default=1.0, help="limit of the gradient's norm (default: 1)")
    for name in ("epochs", "batch-size", "max-length", "window"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--dropout", type=float, help="of the features (default: as the model's family has it)")
    parser.add_argument("--unfreeze", choices=("gradual", "all", "head"))
    parser.add_argument("--pool", choices=("pooled", "cls", "mean", "max"), help="of a BERT, what the head reads")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of matrix products")
    parser.add_argument("--early-stopping", action="store_true", help="dev chooses the epoch")
    parser.add_argument(
        "--patience", type=int, default=2, help="epochs without gain, with --early-stopping (default: 2)"
    )
    add_cluster_options(parser)
    return parser


def measure(given: argparse.Namespace, cluster: Cluster) -> dict[str, Any]:
    """Run all seeds of all rates that have not ended yet; the results, which the chief writes into --output."""
    import lbzoo
    from lbzoo.transfer.finetuning import Settings
    from lbzoo.transfer.glue import find_task
    from training import glue_summary
    from training.glue_data import read_data
    from training.glue_runs import Runs
    from training.replicas import checksum

    task = find_task(given.task)
    glue_output.check_counts(given)
    names = ("epochs", "batch_size", "unfreeze", "patience", "dropout", "warmup", "clip_norm", "optimizer")
    settings = Settings(weight_decay=given.weight_decay, **{name: getattr(given, name) for name in names})
    for rate in given.learning_rates or ():  # told before the first of them has run for hours
        dataclasses.replace(settings, learning_rate=rate)
    data = read_data(task, given.data, given.rows, not given.no_submission)
    with cluster.strategy.scope():
        model = lbzoo.load(given.model)
    reading = {name: getattr(given, name) for name in ("dtype", "max_length", "pool", "window")}
    runs = Runs(model, data, settings, given.early_stopping, reading, given.output, cluster)
    for note in (*data.notes, *(f"{n} rows of {split} were cut to what is read" for split, n in runs.cut.items() if n)):
        _tell(f"note: {note}", cluster)
    fixed = {"model": glue_output.model_name(given.model), "weights": checksum(model.variables), "data": data.digest()}
    fixed.update(task=task.name, early_stopping=given.early_stopping, reading=reading, submission=bool(data.tests))
    fixed["settings"] = {name: getattr(runs.settings, name) for name in (*names, "weight_decay")}
    if cluster.chief:
        _claim(given.output, fixed)
    cluster.barrier()
    usual = runs.settings.learning_rate * (LAMB_FACTOR if given.optimizer == "lamb" else 1)
    # as a run's folder names it, so that no two share one
    rates = sorted({float(f"{rate:g}") for rate in given.learning_rates or [float(f"{usual:.3g}")]})
    done = []
    for rate in rates:
        for seed in range(1, given.seeds + 1):
            done.append(runs.run(rate, seed))
            _tell(f"{task.name} rate {rate:g} seed {seed}: {glue_output.told(done[-1])}", cluster)
    chosen = glue_summary.best_rate(task, done)
    kept = [run for run in done if run["rate"] == chosen]
    results = {
        **fixed,
        **glue_output.figures(data, kept),
        "command": glue_output.command("finetune_glue", given, options()),
        "learning_rates": rates,
        "learning_rate": chosen,
        "other_rates": [run for run in done if run["rate"] != chosen],
    }
    if cluster.chief:
        best = glue_summary.best_run(task, kept)
        for split in data.tests if best is not None else ():
            file = split.task.submission[split.name]
            shutil.copyfile(runs.path(chosen, best["seed"]) / file, given.output / file)
        glue_output.write(given.output, results)
    cluster.barrier()  # nobody leaves while another one still needs it
    return results


def _claim(folder: Path, config: dict[str, Any]) -> None:
    """Keep what all runs of a folder share, or compare with what is kept there."""
    glue_output.require_same(folder, CONFIG, config, "seeds and learning rates alone may be added")
    if (folder / CONFIG).exists():
        return
    if (folder / glue_output.RESULTS).exists():
        raise ConfigError(f"{str(folder)!r} has the results of training.glue_linear. Give --output another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    glue_output.write_text(folder / CONFIG, json.dumps(config, indent=1) + "\n")


def _tell(line: str, cluster: Cluster) -> None:
    if cluster.chief:
        glue_output.tell(line)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where data, model or options cannot be used, or every seed failed.

    76 where another worker was lost: start all again.
    """
    given = options().parse_args(arguments)

    def run(cluster: Cluster) -> int:
        results = measure(given, cluster)
        if cluster.chief:
            return glue_output.show(results)
        return int(all("error" in run for run in results["runs"]))

    return ended("finetune_glue", lambda: on_cluster("finetune_glue", given, run))


if __name__ == "__main__":
    sys.exit(main())
