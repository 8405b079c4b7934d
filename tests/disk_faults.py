"""What comes of a full disk and of a read-only run folder, on a small disk made for it: python -m tests.disk_faults

Prints a line for each fault. Linux, with the right to make a mount namespace (`unshare -r -m`).
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
from pathlib import Path

UNSHARED = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -m tests.disk_faults "$1"'


def available() -> bool:
    """Whether this machine lets us mount a disk of our own."""
    command = ["unshare", "-r", "-m", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True).returncode == 0
    return False


def run(folder: Path) -> str:
    """The printed lines; `folder` is where the disk is mounted."""
    command = ["unshare", "-r", "-m", "sh", "-c", UNSHARED, "sh", str(folder), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def faults(disk: Path) -> None:
    """On the disk of 1 MiB, where a checkpoint takes 256 KiB."""
    import tensorflow as tf

    from lbzoo.errors import TrainingError
    from training import checkpointing, pretrain_mlstm

    variable, runs = tf.Variable(tf.zeros([1 << 16])), disk / "run"
    runs.mkdir()
    checkpoints = checkpointing.Checkpoints(runs, {"variable": variable})
    usage = shutil.disk_usage(disk)

    def save(step: int, say: str) -> None:
        try:
            variable.assign(tf.fill(variable.shape, float(step)))
            checkpoints.save(step, {})
            print(f"{say}: saved")
        except TrainingError as error:
            print(f"{say}: {error}")

    roomy = _Disk(usage._replace(free=1 << 40))  # as if another process took the room after it was asked for
    checkpointing.shutil = roomy
    save(1, "enough room")
    (disk / "ballast").write_bytes(bytes(600 << 10))
    save(2, "full in the middle")
    checkpointing.shutil = shutil
    save(3, "full before")
    restored = checkpoints.restore()
    print(f"restored: step {restored['step']}, {variable.numpy()[0]:g}; left: {sorted(p.name for p in runs.iterdir())}")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    checkpointing.shutil = roomy
    save(4, "read-only")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = pretrain_mlstm.main(["--recipe", "tiny", "--run", str(disk / "new")])
    print(f"start on a read-only disk: status {status}, {said.getvalue().strip()!r}")


class _Disk:
    """`shutil`, but for the room that it reports."""

    def __init__(self, usage) -> None:
        self._usage = usage

    def disk_usage(self, _: Path):
        return self._usage

    def __getattr__(self, name: str):
        return getattr(shutil, name)


def main() -> int:
    if len(sys.argv) > 1:
        faults(Path(sys.argv[1]))
        return 0
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
