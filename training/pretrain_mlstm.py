"""Train an mLSTM on prepared shards.

    python -m training.pretrain_mlstm --recipe tiny
    python -m training.pretrain_mlstm --recipe reviews-512 --shards runs/reviews --run runs/512 --data DATA --minutes 85

    python -m training.pretrain_mlstm --recipe nvidia-32k --dry-run

Started again with the same folders it goes on exactly where it was. The last line prints the loss and a checksum of
the weights. `--export FOLDER` writes the checkpoint folder that lbzoo loads. `--dry-run` prints what a run comes to.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

from lbzoo import console
from lbzoo.errors import LbzooError


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0 when the run is complete, 75 when it stopped early and can go on."""
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
    parser.add_argument("--dry-run", action="store_true", help="print the plan and train nothing")
    parser.add_argument("--tensorboard", action="store_true", help="write events into the run folder")
    parser.add_argument("--profile", action="store_true", help="profile a few steps into the run folder")
    parser.add_argument("--export", type=Path, help="write the trained checkpoint into this folder")
    return parser


def _run(options: argparse.Namespace) -> int:
    import tensorflow as tf

    from training import loop, plan, sample_reviews
    from training.publish import export
    from training.recipes import recipe, with_settings
    from training.trainer import open_stream, train

    config = with_settings(recipe(options.recipe), dict(item.partition("=")[::2] for item in options.set))
    if options.dry_run:
        passes = open_stream(config, options.shards).steps_per_epoch if options.shards else 0
        print(plan.describe(options.recipe, config, passes))
        return 0
    for text in plan.warnings(config):
        print(f"warning: {text}", file=sys.stderr)
    run = options.run or Path("runs") / options.recipe
    shards = options.shards or sample_reviews.write(run / "shards")
    tf.config.experimental.enable_op_determinism()
    data = options.data if options.shards else None
    trainer, end = train(
        config, shards, run, data, options.minutes, options.accept_changes, options.tensorboard, options.profile
    )
    if options.export:
        export(trainer.model, trainer.read_out if config.sentiment_weight else None, options.export)
    print(f"step {end.step} loss {end.loss:.6f} checksum {trainer.checksum()}")
    return 0 if end.complete else loop.RESUME_EXIT


if __name__ == "__main__":
    sys.exit(main())
