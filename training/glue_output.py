"""What a command that measures on GLUE writes and tells: `results.json`, a table row, and how to get them again."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lbzoo
from lbzoo.errors import ConfigError
from lbzoo.files import brief, parse_json, replaced_file
from lbzoo.loading import is_path
from lbzoo.transfer.glue_metrics import majority_baseline
from training import glue_summary

if TYPE_CHECKING:
    from training.glue_data import Data

RESULTS, ROW = "results.json", "row.md"
_NOT_TOLD = ("strategy", "wait")  # without them the same figures come out


def add_data_options(parser: argparse.ArgumentParser, output: str) -> None:
    """--task, --data, --output, --rows and --no-submission."""
    parser.add_argument("--task", required=True, help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte or wnli")
    parser.add_argument("--data", required=True, help="folder that holds CoLA, MRPC, ...; or hub (lbzoo[glue])")
    parser.add_argument("--output", type=Path, required=True, help=output)
    parser.add_argument("--rows", type=int, help="train on so many rows, for a first look")
    parser.add_argument("--no-submission", action="store_true", help="write no leaderboard files")


def check_counts(given: argparse.Namespace) -> None:
    """ConfigError where --seeds or --rows is below 1."""
    for name in ("seeds", "rows"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} must be at least 1. Received: {value}.")


def figures(data: Data, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What `results.json` says of data and of runs that differ in their seed alone."""
    baselines = {split.name: majority_baseline(data.task, split.labels) for split in data.dev}
    weak = glue_summary.no_better_seeds(data.task, runs, baselines)
    minutes = sorted(run["minutes"] for run in runs)
    return {
        "folder": data.task.folder,
        "lbzoo": lbzoo.__version__,
        "train_rows": len(data.train.texts),
        "dev_rows": {split.name: len(split.texts) for split in data.dev},
        "notes": list(data.notes),
        "dev": glue_summary.summary(data.task, runs),
        "majority_baseline": {name: dict(found.values) for name, found in baselines.items()},
        "no_better_than_majority": weak,
        "warnings": glue_summary.warnings_of(data.task, runs, weak),
        "minutes": minutes[len(minutes) // 2],
        "runs": list(runs),
    }


def read(path: Path) -> dict[str, Any]:
    """The JSON object in a file that such a command wrote; ConfigError where it is damaged."""
    try:
        found = parse_json(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}. Delete it to start again without it.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is damaged. Received: {brief(found)}. Delete it to start again without it.")
    return found


def require_same(folder: Path, name: str, fixed: dict[str, Any], free: str) -> None:
    """ConfigError where the file of this name in a folder of results, if it is there, says otherwise than `fixed`.

    Args:
        free: what may differ, in words.
    """
    if not (folder / name).exists():
        return
    kept = read(folder / name)
    other = [field for field in fixed if kept.get(field) != fixed[field]]
    if other:
        told = "; ".join(f"{field} was {kept.get(field)!r}, is {fixed[field]!r}" for field in other)
        raise ConfigError(
            f"{str(folder)!r} holds runs with other options. Received: {told}. Give another --output; {free}."
        )


def write(folder: Path, results: dict[str, Any]) -> None:
    """`results.json` and `row.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RESULTS, json.dumps(results, indent=1) + "\n")
    write_text(folder / ROW, f"{glue_summary.MARKDOWN_HEAD}\n{glue_summary.markdown_row(results)}\n")


def write_text(path: Path, text: str) -> None:
    """The file appears whole."""
    with replaced_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def show(results: dict[str, Any]) -> int:
    """Print warnings and the row; 1 where every seed failed."""
    for line in results["warnings"]:
        tell(f"WARNING: {line}")
    print(f"{glue_summary.MARKDOWN_HEAD}\n{glue_summary.markdown_row(results)}")
    return int(all("error" in run for run in results["runs"]))


def tell(line: str) -> None:
    """To standard error."""
    print(line, file=sys.stderr, flush=True)


def told(run: dict[str, Any]) -> str:
    """A run in a line."""
    if "error" in run:
        return f"failed: {run['error']}"
    values = [
        f"{split} {metric} " + ("undefined" if value is None else f"{100 * value:.2f}")
        for split, found in run["splits"].items()
        for metric, value in found["values"].items()
    ]
    return f"{', '.join(values)} ({run['minutes']:.1f} min)"


def command(module: str, given: argparse.Namespace, usual: argparse.ArgumentParser) -> str:
    """The command line that gives these results again, with words in place of this machine's folders."""
    words = [f"python -m training.{module}"]
    for name, value in vars(given).items():
        if name in _NOT_TOLD:
            continue
        if name in ("data", "output"):
            value = "hub" if value == "hub" else name.upper()
        elif value == usual.get_default(name) or value is None:
            continue
        elif name in ("model", "features"):
            value = model_name(value)
        option = "--" + name.replace("_", "-")
        values = value if isinstance(value, list) else [value]
        words.append(option if value is True else " ".join([option, *(f"{each}" for each in values)]))
    return " ".join(words)


def model_name(model: str) -> str:
    """A checkpoint's name, or that of its folder."""
    folder = Path(model).expanduser()
    return folder.resolve().name if is_path(model) and folder.is_dir() else model
