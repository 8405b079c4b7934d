"""What the runs on a GLUE task come to: median and spread over seeds, the choice of the rate, warnings, a table row.

A seed that failed, or whose metric has no value, is not left out: it ranks below every number, so that it can only
lower the median.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional

import numpy as np

from lbzoo.transfer.glue import Task
from lbzoo.transfer.glue_metrics import NAMES, Score, no_better

MARKDOWN_HEAD = (
    "| task | model | train rows | dev, median (lowest to highest) | majority | seeds | rate | minutes a run |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)
SYSTEMS = {"finetuned": "`{model}`", "frozen": "`{model}`, frozen, linear", "tfidf": "TF-IDF, linear"}
WNLI = (
    "WNLI is not held to its majority baseline: 65 of its 71 dev rows have a sentence of train, and the train row that "
    "is most like them has the other answer in 65, so that what is learnt there misleads. The BERT paper leaves it out."
)


def values_of(runs: Iterable[dict[str, Any]], split: str, metric: str) -> list[Optional[float]]:
    """One a run; None where it failed or the metric has no value."""
    return [run["splits"][split]["values"][metric] if "splits" in run else None for run in runs]


def median(values: Sequence[Optional[float]]) -> Optional[float]:
    """Of all values, where None ranks below every number; None where the median does not exist."""
    ranked = sorted(-np.inf if value is None else value for value in values)
    middle = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
    return float(np.mean(middle)) if np.isfinite(middle).all() else None


def summary(task: Task, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{dev split: {metric: median, lowest, highest, values of all seeds}}."""
    found: dict[str, Any] = {}
    for split in task.dev_splits:
        found[split] = {}
        for metric in task.metrics:
            values = values_of(runs, split, metric)
            there = [value for value in values if value is not None]
            found[split][metric] = {
                "median": median(values),
                "lowest": min(there, default=None),
                "highest": max(there, default=None),
                "values": values,
            }
    return found


def merit(task: Task, run: dict[str, Any]) -> Optional[float]:
    """One number of a run on dev: the mean of the metrics, and of MNLI's two splits; None where one has no value."""
    values = [values_of([run], split, metric)[0] for split in task.dev_splits for metric in task.metrics]
    return None if None in values else float(np.mean(values))


def best_rate(task: Task, runs: Sequence[dict[str, Any]]) -> float:
    """The learning rate with the highest median on dev; the lowest where that ties."""
    rates = sorted({run["rate"] for run in runs})
    medians = {rate: median([merit(task, run) for run in runs if run["rate"] == rate]) for rate in rates}
    return max(rates, key=lambda rate: -np.inf if medians[rate] is None else medians[rate])


def best_run(task: Task, runs: Sequence[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """The run with the highest figures on dev; None where all failed."""
    whole = [run for run in runs if "splits" in run]
    return max(whole, key=lambda run: -np.inf if merit(task, run) is None else merit(task, run), default=None)


def no_better_seeds(task: Task, runs: Iterable[dict[str, Any]], baselines: dict[str, Score]) -> list[int]:
    """Seeds that on a dev split are no better than always answering its commonest label; failed ones aside."""
    return [
        run["seed"]
        for run in runs
        if "splits" in run
        and any(no_better(Score(run["splits"][split]["values"]), baselines[split]) for split in task.dev_splits)
    ]


def warnings_of(task: Task, runs: Sequence[dict[str, Any]], seeds: Sequence[int]) -> list[str]:
    """What a reader of the figures must know.

    Args:
        seeds: those that are no better than the majority baseline.
    """
    told = [
        f"seed {run['seed']} failed and counts below every figure: {run['error']}" for run in runs if "error" in run
    ]
    for run in runs:
        for split, found in run.get("splits", {}).items():
            told += [
                f"seed {run['seed']}: {NAMES[metric]} on {split} is undefined, {why}"
                for metric, why in found["undefined"].items()
            ]
    if seeds and task.name != "wnli":
        told.append(
            f"no better than always giving the commonest label: {len(seeds)} of {len(runs)} seeds "
            f"({', '.join(map(str, seeds))}). They have learnt nothing that {task.name}'s metric shows."
        )
    elif seeds:
        told.append(WNLI)
    return told


def figure(found: dict[str, Any]) -> str:
    """In percent, as "62.1 (60.3 to 63.9)"; seeds without a value are counted."""
    missing = sum(value is None for value in found["values"])
    middle = "undefined" if found["median"] is None else f"{100 * found['median']:.1f}"
    spread = "" if found["lowest"] is None else f"{100 * found['lowest']:.1f} to {100 * found['highest']:.1f}"
    if missing:
        spread += f"{'; ' if spread else ''}{missing} of {len(found['values'])} seeds without a value"
    return f"{middle} ({spread})"


def title(result: dict[str, Any]) -> str:
    """Of its row or column: the checkpoint, and what was done with it where that is no fine-tuning."""
    return SYSTEMS[result.get("system", "finetuned")].format(model=result["model"])


def rate(result: dict[str, Any]) -> str:
    """The learning rate in words, "-" where there is none."""
    if result["learning_rate"] is None:
        return "-"
    return f"{result['learning_rate']:g}" + (", chosen on dev" if len(result["learning_rates"]) > 1 else "")


def markdown_row(result: dict[str, Any]) -> str:
    """Of a result as `finetune_glue` and `glue_linear` write it, under `MARKDOWN_HEAD`."""
    figures = [
        f"{NAMES[metric]} {figure(found)}" + (f" on {split}" if split != "dev" else "")
        for split, metrics in result["dev"].items()
        for metric, found in metrics.items()
    ]
    majority = [
        "undefined" if value is None else f"{100 * value:.1f}"
        for values in result["majority_baseline"].values()
        for value in values.values()
    ]
    seeds = str(len(result["runs"])) + (", epoch chosen on dev" if result["early_stopping"] else "")
    cells = (
        result["folder"],
        title(result),
        str(result["train_rows"]),
        "<br>".join(figures),
        " / ".join(majority),
        seeds,
        rate(result),
        f"{result['minutes']:.1f}",
    )
    return "| " + " | ".join(cells) + " |"
