"""README's GLUE table from the results in the repository: `python -m training.glue_report [--check]`.

`training/glue_results/*.json` are `results.json` of `training.finetune_glue` and `training.glue_linear`, one of each
task and of each model as it was used. Their figures are of dev; those of the BERT paper are of the leaderboard's test
splits and have a column of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from lbzoo.files import parse_json
from lbzoo.transfer.glue import TASKS, Task
from lbzoo.transfer.glue_metrics import NAMES
from training import readme_table
from training.glue_summary import figure, title

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "python -m training.glue_report"
START, END = f"<!-- glue: start ({COMMAND}) -->", "<!-- glue: end -->"
# BERT-base, Devlin et al. 2019, table 1: (task, split of dev that stands for it, metric) -> percent on the test split
PUBLISHED: Mapping[tuple[str, str, str], float] = {
    ("cola", "dev", "matthews"): 52.1,
    ("sst2", "dev", "accuracy"): 93.5,
    ("mrpc", "dev", "f1"): 88.9,
    ("stsb", "dev", "spearman"): 85.8,
    ("qqp", "dev", "f1"): 71.2,
    ("mnli", "dev_matched", "accuracy"): 84.6,
    ("mnli", "dev_mismatched", "accuracy"): 83.4,
    ("qnli", "dev", "accuracy"): 90.5,
    ("rte", "dev", "accuracy"): 66.4,
}
LEGEND = (
    "On dev, in percent: the median over seeds (lowest to highest), how many seeds, and minutes of a run on this "
    "project's machine, beside other work. Linear models stand on frozen features, or on TF-IDF; their seeds decide "
    "the folds that choose the penalty. A seed that failed counts below every figure. a: dev chose the learning rate "
    "or the epoch; b: no better than always giving the commonest label, in some seed."
)


def read_results(folder: Path) -> list[dict[str, Any]]:
    """All results, by file name.

    Raises:
        ValueError: a file that holds no such results, one of a part of the training rows, or two of the same task,
            model and use of it.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        result = _result(path)
        key, rows = (result["task"], title(result)), TASKS[result["task"]].rows["train"]
        if key in found:
            raise ValueError(f"{path.name}: there is another result of {key[1]} on {key[0]}. Keep one.")
        if result["train_rows"] != rows:
            raise ValueError(f"{path.name}: trained on {result['train_rows']} of {rows} rows, which is no result.")
        found[key] = result
    return list(found.values())


def _result(path: Path) -> dict[str, Any]:
    try:
        result = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be parsed: {error}. Copy it again.") from error
    wanted = ("task", "model", "train_rows", "dev", "majority_baseline", "runs", "minutes", "learning_rates")
    wanted = (*wanted, "early_stopping", "no_better_than_majority")
    missing = [name for name in wanted if not isinstance(result, dict) or name not in result]
    if missing or result["task"] not in TASKS:
        told = f"no {', '.join(missing)}" if missing else f"task {result['task']!r}"
        raise ValueError(f"{path.name} is no results.json of finetune_glue or glue_linear. Received: {told}.")
    return result


def table(results: Sequence[dict[str, Any]]) -> str:
    """The Markdown table: a row for each task and metric, a column for each model as it was used; empty for none."""
    if not results:
        return ""
    models = sorted({title(result) for result in results})
    by_key = {(result["task"], title(result)): result for result in results}
    head = ["task", "metric", "majority", *models, "BERT-base, published, test"]
    rows = [head, ["---"] * len(head)]
    for task in TASKS.values():
        there = [by_key[task.name, model] for model in models if (task.name, model) in by_key]
        for split in task.dev_splits if there else ():
            for metric in task.metrics:
                majority = there[0]["majority_baseline"][split][metric]
                published = PUBLISHED.get((task.name, split, metric))
                rows.append(
                    [
                        task.folder + ("" if split == "dev" else f", {split.partition('_')[2]}"),
                        NAMES[metric],
                        "undefined" if majority is None else f"{100 * majority:.1f}",
                        *(_cell(by_key.get((task.name, model)), task, split, metric) for model in models),
                        "-" if published is None else f"{published:.1f}",
                    ]
                )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n\n{LEGEND}"


def with_table(readme: str, results: Sequence[dict[str, Any]]) -> str:
    """README's text with the table of these results; ValueError where a marker is missing or repeated."""
    return readme_table.between(readme, START, END, table(results))


def _cell(result: Optional[dict[str, Any]], task: Task, split: str, metric: str) -> str:
    if result is None:
        return "-"
    told = figure(result["dev"][split][metric])
    if result["early_stopping"] or len(result["learning_rates"]) > 1:
        told += " a"
    if result["no_better_than_majority"] and task.name != "wnli":
        told += " b"
    if (split, metric) == (task.dev_splits[0], task.metrics[0]):
        told += f"<br>{len(result['runs'])} seeds, {result['minutes']:.1f} min"
    return told


def main(arguments: Optional[Sequence[str]] = None, root: Path = ROOT) -> int:
    """The command line; exit status 1 where --check finds the table out of date, or the results make no table."""
    return readme_table.main(
        arguments,
        root / "README.md",
        ("GLUE", COMMAND),
        __doc__,
        lambda text: with_table(text, read_results(root / "training" / "glue_results")),
    )


if __name__ == "__main__":
    sys.exit(main())
