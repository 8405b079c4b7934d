"""Train an mLSTM on prepared shards.

    python -m training.pretrain_mlstm --recipe tiny
    python -m training.pretrain_mlstm --recipe reviews-512 --shards runs/reviews --run runs/512 --data DATA --minutes 85

    python -m training.pretrain_mlstm --recipe nvidia-32k --dry-run
    python -m training.launch --workers 2 -- python -m training.pretrain_mlstm --recipe tiny --strategy multiworker

Started again with the same folders it goes on exactly where it was. The last line prints the loss and a checksum of
the weights. `--export FOLDER` writes the checkpoint folder that lbzoo loads. `--dry-run` prints what a run comes to.

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

from lbzoo import console
from lbzoo.errors import LbzooError

if TYPE_CHECKING:
    from training.cluster import Cluster
    from training.recipes import RunConfig


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        console.import_tensorflow()
        return _run(options)
    except (LbzooError, OSError) as error:
        print(f"pretrain_mlstm: error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a name in training/recipes.py")
    parser.add_argument(
        "--shards", type=Path, help="folder of prepared text, see training/shards.py (default: a few made-up reviews)"
    )
    parser.add_argument("--run", type=Path, help="run folder (default: runs/RECIPE)")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="review sets, for held-out figures"
    )
    parser.add_argument("--minutes", type=float, help="stop, saved, after so long")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="replace a field of the recipe"
    )
    parser.add_argument(
        "--accept-changes", action="store_true", help="go on in a run folder that has another configuration"
    )
    parser.add_argument(
        "--strategy",
        choices=("none", "mirrored", "multiworker", "tpu"),
        default="none",
        help="none: one device; mirrored: every GPU here; multiworker: TF_CONFIG or Slurm; tpu: TPU_NAME",
    )
    parser.add_argument(
        "--wait", type=float, default=300, metavar="SECONDS", help="for the other workers to come (default: 300)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and train nothing")
    parser.add_argument("--tensorboard", action="store_true", help="write events into the run folder")
    parser.add_argument("--profile", action="store_true", help="profile a few steps into the run folder")
    parser.add_argument("--export", type=Path, help="write the trained checkpoint into this folder")
    parser.add_argument("--best", action="store_true", help="export the best checkpoint by held-out bits, not the last")
    return parser


def _run(options: argparse.Namespace) -> int:
    import tensorflow as tf

    from training import plan
    from training.cluster import LOST_EXIT, WorkerLostError, connect
    from training.recipes import recipe, with_settings
    from training.trainer import open_stream

    config = with_settings(recipe(options.recipe), dict(item.partition("=")[::2] for item in options.set))
    if options.dry_run:
        passes = open_stream(config, options.shards).steps_per_epoch if options.shards else 0
        print(plan.describe(options.recipe, config, passes))
        return 0
    tf.config.experimental.enable_op_determinism()
    try:
        cluster = connect(options.strategy, options.wait)
        with cluster.watching():
            return _train(options, config, cluster)
    except WorkerLostError as error:
        print(f"pretrain_mlstm: {error}. Start all workers again to go on.", file=sys.stderr, flush=True)
        os._exit(LOST_EXIT)  # an orderly end would wait for the one that was lost


def _train(options: argparse.Namespace, config: RunConfig, cluster: Cluster) -> int:
    from training import loop, plan, sample_reviews
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
    trainer, end = train(config, shards, run, data, options.minutes, options.accept_changes, *watched, cluster)
    last_line = f"step {end.step} loss {end.loss:.6f} checksum {trainer.checksum()}"
    if options.export and options.best:
        commit = restore_best(run, trainer)
        if cluster.chief:
            print(f"exported: step {commit['step']}, bpc {commit['figures']['bpc']:.4f}")
    if options.export and cluster.chief:
        from training.publish import export

        export(trainer.model, trainer.read_out if config.sentiment_weight else None, options.export)
    cluster.barrier()  # nobody leaves while another one still needs it
    if cluster.chief:
        print(last_line)
    return 0 if end.complete else loop.RESUME_EXIT


if __name__ == "__main__":
    sys.exit(main())
