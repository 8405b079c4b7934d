"""What the commands that train share: their options, and how they end.

Exit status: 0 the run is complete; 1 an error that starting again does not mend; 75 asked to stop (SIGTERM or SIGINT to
any worker, or --minutes), saved; 76 another worker was lost. After 75 and 76, start again, all workers together.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence

from lbzoo import console
from lbzoo.errors import LbzooError

if TYPE_CHECKING:
    from training.cluster import Cluster
    from training.loop import End


def parser(description: str, recipes: str, shards: str) -> argparse.ArgumentParser:
    """The options of every run.

    Args:
        recipes: the file that holds its recipes. shards: what --shards takes.
    """
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recipe", required=True, help=f"a name in {recipes}")
    options.add_argument("--shards", type=Path, help=f"{shards} (default: a few made-up reviews)")
    options.add_argument("--run", type=Path, help="run folder (default: one under runs/, named after the recipe)")
    options.add_argument("--minutes", type=float, help="stop, saved, after so long")
    options.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="replace a field of the recipe"
    )
    options.add_argument(
        "--accept-changes", action="store_true", help="go on in a run folder that has another configuration"
    )
    add_cluster_options(options)
    options.add_argument("--dry-run", action="store_true", help="print the plan and train nothing")
    options.add_argument("--tensorboard", action="store_true", help="write events into the run folder")
    options.add_argument("--profile", action="store_true", help="profile a few steps into the run folder")
    options.add_argument(
        "--export", type=Path, help="write the trained checkpoint into this folder, once all steps are done"
    )
    options.add_argument(
        "--best", action="store_true", help="export the best checkpoint by held-out figures, not the last"
    )
    return options


def add_cluster_options(options: argparse.ArgumentParser) -> None:
    """--strategy and --wait, which `on_cluster` reads."""
    options.add_argument(
        "--strategy",
        choices=("none", "mirrored", "multiworker", "tpu"),
        default="none",
        help="none: one device; mirrored: every GPU here; multiworker: TF_CONFIG or Slurm; tpu: TPU_NAME",
    )
    options.add_argument(
        "--wait", type=float, default=300, metavar="SECONDS", help="for the other workers to come (default: 300)"
    )


def settings(options: argparse.Namespace) -> Mapping[str, str]:
    """What --set says, by field."""
    return dict(item.partition("=")[::2] for item in options.set)


def main(
    name: str,
    options: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    arguments: Optional[Sequence[str]],
) -> int:
    """Parse `arguments` and `run`; the exit status, and one line for an error that was raised on purpose."""
    given = options.parse_args(arguments)
    if given.minutes is not None and not given.minutes > 0:
        options.error(f"--minutes is above 0. Received: {given.minutes:g}")
    if given.best and not given.export:
        options.error("--best says what --export FOLDER writes; give both")
    return ended(name, lambda: run(given))


def ended(name: str, run: Callable[[], int]) -> int:
    """`run`, with a quiet TensorFlow; its exit status, or 141 where who read along has left, 130 where it was
    interrupted, or 1 for an error that was raised on purpose, told in one line."""
    try:
        console.import_tensorflow()
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # who read along has seen enough
        console.abandon_stdout()
        return 141
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except (LbzooError, OSError) as error:
        print(f"{name}: error: {console.one_line(error)}", file=sys.stderr)
        return 1


def on_cluster(name: str, options: argparse.Namespace, train: Callable[[Cluster], int]) -> int:
    """`train` on the devices and workers that --strategy asks for; its exit status."""
    import tensorflow as tf

    from training.cluster import LOST_EXIT, WorkerLostError, connect

    tf.config.experimental.enable_op_determinism()
    try:
        cluster = connect(options.strategy, options.wait)
        with cluster.watching():
            return train(cluster)
    except WorkerLostError as error:
        print(f"{name}: {error}. Start all workers again to go on.", file=sys.stderr, flush=True)
        os._exit(LOST_EXIT)  # an orderly end would wait for the one that was lost


def finish(
    options: argparse.Namespace,
    cluster: Cluster,
    trainer: Any,
    end: End,
    restore_best: Callable[[], Mapping[str, Any]],
    figure: str,
    export: Callable[[], None],
) -> int:
    """Export what --export and --best ask for and print the last line; the exit status. All workers call it.

    A run that stopped early exports nothing, so that nobody takes what is in that folder for the finished one.

    Args:
        restore_best: brings the best checkpoint by the held-out `figure` back into `trainer`; its COMMIT.json.
        export: writes the trainer's weights into --export.
    """
    from training.loop import RESUME_EXIT

    last_line = f"step {end.step} loss {end.loss:.6f} checksum {trainer.checksum()}"
    exports = options.export and end.complete
    if exports and options.best:
        commit = restore_best()
        if cluster.chief:
            print(f"exported: step {commit['step']}, {figure} {commit['figures'][figure]:.4f}")
    if exports and cluster.chief:
        export()
    if options.export and not exports:
        last_line += f", nothing exported to {options.export} before the last step"
    cluster.barrier()  # nobody leaves while another one still needs it
    if cluster.chief:
        print(last_line)
    return 0 if end.complete else RESUME_EXIT
