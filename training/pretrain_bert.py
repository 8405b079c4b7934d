"""Pre-train a BERT on prepared token ids, in one or two phases.

    python -m training.pretrain_bert --recipe tiny
    python -m training.pretrain_bert --recipe bert-mini-reviews --shards runs/tokens --run runs/mini --minutes 85 \\
        --export runs/mini-export

    python -m training.pretrain_bert --recipe bert-large-lamb-64k-32k --dry-run
    python -m training.launch --workers 2 -- python -m training.pretrain_bert --recipe tiny --strategy multiworker

Started again with the same folders it goes on exactly where it was. The last line prints the loss and a checksum of
the weights. `--export FOLDER` writes the checkpoint folder that lbzoo loads, once all steps are done. `--dry-run`
prints what a run comes to.

With --strategy multiworker every worker runs the same command on the same folders (examples/cluster/).

Exit status: 0 the run is complete; 1 an error that starting again does not mend; 75 asked to stop (SIGTERM or SIGINT to
any worker, or --minutes), saved; 76 another worker was lost. After 75 and 76, start again, all workers together.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence

from training import command

if TYPE_CHECKING:
    from training.bert_recipes import BertRunConfig
    from training.cluster import Cluster

NAME = "pretrain_bert"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    options = command.parser(__doc__, "training/bert_recipes.py", "folder of token ids, see training/prepare_bert.py")
    return command.main(NAME, options, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    from training import bert_plan
    from training.bert_recipes import recipe
    from training.settings import with_settings

    config = with_settings(recipe(options.recipe), command.settings(options))
    if options.dry_run:
        epochs = []
        if options.shards:
            from training.bert_run import open_streams

            epochs = [stream.steps_per_epoch for stream in open_streams(config, options.shards)]
        print(bert_plan.describe(options.recipe, config, epochs))
        return 0
    return command.on_cluster(NAME, options, functools.partial(_train, options, config))


def _train(options: argparse.Namespace, config: BertRunConfig, cluster: Cluster) -> int:
    from training import bert_plan
    from training.bert_run import BEST, restore_best, sample_shards, train

    for text in bert_plan.warnings(config) if cluster.chief else ():
        print(f"warning: {text}", file=sys.stderr)
    name = options.recipe if options.recipe.startswith("bert") else f"bert-{options.recipe}"
    run = options.run or Path("runs") / name
    shards = options.shards or run / "shards"
    if cluster.chief and not options.shards:
        sample_shards(shards, config.model.vocab_size)
    cluster.barrier()
    watched = options.tensorboard, options.profile
    trainer, end = train(config, shards, run, options.minutes, options.accept_changes, *watched, cluster, options.best)

    def export() -> None:
        trainer.model.save_pretrained(options.export, dtype="float16")

    return command.finish(options, cluster, trainer, end, lambda: restore_best(run, trainer), BEST, export)


if __name__ == "__main__":
    sys.exit(main())
