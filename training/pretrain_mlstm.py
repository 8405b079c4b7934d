"""Train an mLSTM on prepared shards.

    python -m training.pretrain_mlstm --recipe tiny
    python -m training.pretrain_mlstm --recipe reviews-512 --shards runs/reviews --run runs/512 --data DATA --minutes 85

    python -m training.pretrain_mlstm --recipe nvidia-32k --dry-run
    python -m training.launch --workers 2 -- python -m training.pretrain_mlstm --recipe tiny --strategy multiworker

Started again with the same folders it goes on exactly where it was. The last line prints the loss and a checksum of
every bit of the weights, which several workers round differently than one. `--export FOLDER` writes the checkpoint
folder that lbzoo loads, once all steps are done. `--dry-run` prints what a run comes to.

With --strategy multiworker every worker runs the same command on the same folders (examples/cluster/).

Exit status: 0 the run is complete; 1 an error that starting again does not mend; 75 asked to stop (SIGTERM or SIGINT to
any worker, or --minutes), saved; 76 another worker was lost. After 75 and 76, start again, all workers together.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence

from training import command

if TYPE_CHECKING:
    from training.cluster import Cluster
    from training.recipes import RunConfig

NAME = "pretrain_mlstm"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    options = command.parser(__doc__, "training/recipes.py", "folder of prepared text, see training/shards.py")
    options.add_argument(
        "--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="review sets, for held-out figures"
    )
    return command.main(NAME, options, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    from training import plan
    from training.recipes import recipe
    from training.settings import with_settings
    from training.trainer import open_stream

    config = with_settings(recipe(options.recipe), command.settings(options))
    if options.dry_run:
        passes = open_stream(config, options.shards).steps_per_epoch if options.shards else 0
        print(plan.describe(options.recipe, config, passes))
        return 0
    return command.on_cluster(NAME, options, lambda cluster: _train(options, config, cluster))


def _train(options: argparse.Namespace, config: RunConfig, cluster: Cluster) -> int:
    from training import plan, sample_reviews
    from training.trainer import restore_best, train

    for text in plan.warnings(config) if cluster.chief else ():
        print(f"warning: {text}", file=sys.stderr)
    run = options.run or Path("runs") / options.recipe
    shards = options.shards or run / "shards"
    if cluster.chief and not options.shards:
        sample_reviews.write(shards)
    cluster.barrier()
    data = options.data if options.shards else None
    watched = options.tensorboard, options.profile
    trainer, end = train(
        config, shards, run, data, options.minutes, options.accept_changes, *watched, cluster, options.best
    )

    def export() -> None:
        from training.publish import export

        export(trainer.model, trainer.read_out if config.sentiment_weight else None, options.export)

    return command.finish(options, cluster, trainer, end, lambda: restore_best(run, trainer), "bpc", export)


if __name__ == "__main__":
    sys.exit(main())
