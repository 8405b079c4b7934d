"""Curves of a run as a picture: `python -m training.curves training/curves/mlstm-1024-reviews --output CURVES.png`.

Reads what `training.watch` writes into a run's folder: log.csv and, where held-out figures were measured,
heldout.csv. Needs the extra "plot" (matplotlib).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import numpy as np

from lbzoo.errors import LbzooError, TrainingError

SMOOTHED = 25  # lines of the log in one point of a training curve
LOSSES = {
    "bpc": "bits per character",
    "masked_lm": "masked-LM loss, nats",
    "next_sentence": "next-sentence loss, nats",
    "sentiment": "sentiment loss, nats",
}


def table(path: Path) -> dict[str, np.ndarray]:
    """Columns of a log by name, NaN where a row has no value.

    Raises:
        TrainingError: the file is missing or is no log of a run.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            columns, *rows = csv.reader(file)
            values = np.array([[float(v or "nan") for v in row] for row in rows], np.float64)
            return dict(zip(columns, values.reshape(-1, len(columns)).T))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path} cannot be read as a log of a run: {error}.") from error


def smoothed(values: np.ndarray, width: int = SMOOTHED) -> np.ndarray:
    """Means of up to `width` values around each, fewer at both ends; as many as there were."""
    width = max(1, min(width, len(values)))
    counts = np.convolve(np.ones(len(values)), np.ones(width), mode="same")
    return np.convolve(values, np.ones(width), mode="same") / counts


def draw(runs: Sequence[Path], output: Path) -> None:
    """One panel for each loss that the runs have, and one for held-out accuracies, into a picture file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    logs = {run.name: table(run / "log.csv") for run in runs}
    held = {run.name: table(run / "heldout.csv") for run in runs if (run / "heldout.csv").exists()}
    panels = [name for name in LOSSES if any(name in log for log in logs.values())]
    accuracies = sorted({name for log in held.values() for name in log} - {"step", *LOSSES})
    figure, axes = pyplot.subplots(1, len(panels) + bool(accuracies), figsize=(5 * (len(panels) + 1), 4), squeeze=False)
    for axis, panel in zip(axes[0], panels):
        for name, log in logs.items():
            if panel in log:
                (line,) = axis.plot(log["step"], smoothed(log[panel]), label=f"{name}, training text")
                if panel in held.get(name, {}):
                    points = held[name]
                    axis.plot(points["step"], points[panel], "o--", color=line.get_color(), label=f"{name}, held out")
        axis.set(xlabel="step", ylabel=LOSSES[panel])
    for name, log in held.items():
        for accuracy in accuracies:
            if accuracy in log:
                axes[0][-1].plot(log["step"], 100 * log[accuracy], "o-", label=f"{name}, {accuracy}")
    if accuracies:
        axes[0][-1].set(xlabel="step", ylabel="held-out accuracy, %")
    for axis in axes[0]:
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(output, dpi=100)
    pyplot.close(figure)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, or 1 where a log cannot be read or the picture not be written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--output", type=Path, required=True, help="picture; its ending says the format: png, pdf, svg")
    options = parser.parse_args(arguments)
    try:
        draw(options.runs, options.output)
    except ImportError:
        parser.error('matplotlib draws the curves: pip install "lbzoo[plot]"')
    except (LbzooError, OSError, ValueError) as error:
        print(f"curves: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
