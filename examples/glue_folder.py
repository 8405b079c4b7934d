"""Fine-tuning on data in GLUE's layout: `python examples/glue_folder.py GLUE --task rte --model bert-minilm-l6`.

GLUE is the folder that holds RTE/train.tsv, RTE/dev.tsv and RTE/test.tsv; `examples/glue` has a few made-up rows in
that form. For figures to compare, over several seeds and with warnings, there is `python -m training.finetune_glue`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import lbzoo
from lbzoo.transfer.glue import find_task
from lbzoo.transfer.glue_files import read_split, write_submission
from lbzoo.transfer.glue_metrics import majority_baseline, score

HERE = Path(__file__).resolve().parent


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "glue")
    parser.add_argument("--task", default="rte", help="cola, sst2, mrpc, stsb, qqp, qnli, rte or wnli")
    parser.add_argument("--model", default="mlstm-512-reviews", help="an mLSTM or a BERT")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--output", type=Path, default=Path("."), help="where the leaderboard's file goes")
    given = parser.parse_args(arguments)

    task = find_task(given.task)
    train, dev, test = (read_split(task, given.folder, split) for split in ("train", "dev", "test"))
    given.output.mkdir(parents=True, exist_ok=True)
    classifier = lbzoo.TextClassifier(
        given.model,
        task="regress" if task.regression else "classify",
        epochs=given.epochs,
        validation_fraction=0,  # all epochs, so that dev has chosen nothing when it is measured
        random_state=1,
    )
    classifier.fit(train.texts, train.labels)  # texts, or (first, second) pairs; labels by their names
    found = score(task, classifier.predict(dev.texts).tolist(), dev.labels)
    baseline = majority_baseline(task, dev.labels)
    for metric, value in found.values.items():
        print(f"{task.folder} dev {metric}: {value}, always the commonest label: {baseline.values[metric]}")
    print(write_submission(task, test, classifier.predict(test.texts).tolist(), given.output))


if __name__ == "__main__":
    try:
        main()
    except (lbzoo.LbzooError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
