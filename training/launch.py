"""Start the workers of a run on this machine, watch over them, and start all again when one is lost.

    python -m training.launch --workers 2 -- python -m training.pretrain_mlstm --recipe tiny --strategy multiworker

Each worker is a process of its own, with everybody's address and its own number in TF_CONFIG. What it says goes into
LOGS/worker-N.log; what worker 0 says is shown here too. A worker that fails takes the others with it: they get SIGTERM
and, if they are still there --grace seconds later, SIGKILL. Then all start again, at most --restarts times. SIGTERM or
SIGINT to this process is passed on to the workers, and nothing is started again.

Cores, and the GPUs in CUDA_VISIBLE_DEVICES, are divided among the workers. POSIX only.

Exit status:
    0         every worker is done
    75        the workers stopped where they were asked to, saved; start again to go on
    70        a worker was lost once more after --restarts restarts
    130, 143  stopped by SIGINT or SIGTERM, and not every worker could save
    others    of a worker that failed in a way that starting again does not mend: 1 an error that it reported, 2 wrong
              arguments, 126 or 127 no such command
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import json
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

RESUME_EXIT, LOST_EXIT = 75, 76  # of a worker: it stopped as asked; it lost another worker
GIVE_UP_EXIT = 70
PERMANENT = (1, 2, 126, 127)
POLL = 0.1  # seconds
ECHO = 2  # seconds in which a worker that another one lost may still say why


@dataclasses.dataclass
class Worker:
    """A process that leads its own process group.

    Attributes:
        told: whether it was sent a signal from here, so that its end says nothing about itself.
    """

    number: int
    process: subprocess.Popen
    log: Path
    told: bool = False

    @property
    def status(self) -> Optional[int]:
        """Exit status, negative for a signal; None while it runs."""
        return self.process.poll()

    def send(self, number: int) -> None:
        """A signal to it and to what it started, while it runs."""
        if self.status is None:
            self.told = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def failed(self) -> bool:
        """Whether it ended by a fault of its own."""
        return self.status not in (None, 0, RESUME_EXIT, LOST_EXIT) and not self.told

    def end(self) -> str:
        """How it ended, in words."""
        status = self.status
        if status == LOST_EXIT:
            return f"worker {self.number} lost another one"
        told = " (sent from here)" if self.told else ""
        how = f"{signal.Signals(-status).name}{told}" if status < 0 else f"exit status {status}"
        said = self.log.read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines() if self.failed() else []
        return f"worker {self.number} ended with {how}" + (f", its last words: {said[-1][:200]}" if said else "")


class Gang:
    """The workers of one attempt.

    Args:
        command: program and arguments of every worker.
        workers: how many.
        logs: folder of their logs, which are appended to.
        grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, command: Sequence[str], workers: int, logs: Path, grace: float) -> None:
        self.grace = grace
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
        self.workers: list[Worker] = []
        try:
            for number in range(workers):
                self.workers.append(_start(command, environment(addresses, number), logs, number))
        except OSError:
            self.kill()
            raise

    def wait(self, asked: Sequence[int], show: Callable[[], None]) -> None:
        """Return when all have ended.

        Args:
            asked: signals that this process got so far; each is passed on.
            show: called now and then.
        """
        passed, term_at, kill_at = 0, math.inf, math.inf
        while any(worker.status is None for worker in self.workers):
            time.sleep(POLL)
            show()
            now = time.monotonic()
            for number in asked[passed:]:
                self._send(number)
                passed, kill_at = passed + 1, min(kill_at, now + self.grace)
            term_at = min(term_at, now + self._patience())
            if now >= term_at and kill_at == math.inf:
                self._send(signal.SIGTERM)
                kill_at = now + self.grace
            if now >= kill_at:
                self._send(signal.SIGKILL)
        show()

    def _patience(self) -> float:
        """How long the workers that run may go on, in view of those that have ended."""
        ended = {worker.status for worker in self.workers} - {None}
        if not ended:
            return math.inf
        if ended <= {0, RESUME_EXIT}:
            return self.grace
        return ECHO if ended <= {0, RESUME_EXIT, LOST_EXIT} else 0

    def _send(self, number: int) -> None:
        for worker in self.workers:
            worker.send(number)

    def kill(self) -> None:
        """End what still runs."""
        self._send(signal.SIGKILL)
        for worker in self.workers:
            worker.process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        doors = [stack.enter_context(socket.socket()) for _ in range(count)]
        for door in doors:
            door.bind(("127.0.0.1", 0))
        return [door.getsockname()[1] for door in doors]


def environment(addresses: Sequence[str], number: int) -> dict[str, str]:
    """What worker `number` finds in its environment."""
    count = len(addresses)
    task = {"type": "worker", "index": number}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = {
        "TF_NUM_INTRAOP_THREADS": str(max(1, cores // count)),
        **os.environ,
        "TF_CONFIG": json.dumps({"cluster": {"worker": list(addresses)}, "task": task}),
        "PYTHONUNBUFFERED": "1",
    }
    devices = [device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
    if len(devices) >= count:  # untested here
        share = len(devices) // count
        found["CUDA_VISIBLE_DEVICES"] = ",".join(devices[number * share : (number + 1) * share])
    return found


def _start(command: Sequence[str], environment: Mapping[str, str], logs: Path, number: int) -> Worker:
    log = logs / f"worker-{number}.log"
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    return Worker(number, process, log)


def _end_with_parent() -> None:
    """In a new process: SIGTERM for it when the launcher is killed (Linux)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Tail:
    """Shows on standard output what is added to a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, path.stat().st_size if path.exists() else 0

    def __call__(self) -> None:
        with open(self._path, "rb") as file:
            file.seek(self._at)
            added = file.read()
        self._at += len(added)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(added.decode("utf-8", "replace"))
            sys.stdout.flush()


def launch(command: Sequence[str], workers: int, logs: Path, restarts: int = 3, grace: float = 30) -> int:
    """Run `command` in `workers` processes until they are done; the exit status, see the module.

    Args:
        restarts: how often all are started again after one was lost.
        logs, grace: see `Gang`.

    Raises:
        OSError: the command cannot be started, or the logs cannot be written.
    """
    logs.mkdir(parents=True, exist_ok=True)
    asked: list[int] = []
    before = {n: signal.signal(n, lambda got, _: asked.append(got)) for n in (signal.SIGTERM, signal.SIGINT)}
    show = Tail(logs / "worker-0.log")
    try:
        for attempt in range(restarts + 1):
            gang = Gang(command, workers, logs, grace)
            _say(", ".join(f"worker {worker.number} is process {worker.process.pid}" for worker in gang.workers))
            try:
                gang.wait(asked, show)
            finally:
                gang.kill()
            status = _verdict(gang, asked)
            if status is not None:
                return status
            again = f"restart {attempt + 1} of {restarts}" if attempt < restarts else f"giving up, {restarts} restarts"
            _say(f"{'; '.join(worker.end() for worker in gang.workers)}: {again}")
        return GIVE_UP_EXIT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _verdict(gang: Gang, asked: Sequence[int]) -> Optional[int]:
    """The exit status; None where starting again may help."""
    statuses = [worker.status for worker in gang.workers]
    if set(statuses) <= {0, RESUME_EXIT}:
        return max(statuses)
    if asked:
        _say("; ".join(worker.end() for worker in gang.workers))
        return 128 + asked[0]
    for worker in gang.workers:
        if worker.failed() and worker.status in PERMANENT:
            _say(worker.end())
            return worker.status
    return None


def _say(message: str) -> None:
    print(f"launch: {message}", file=sys.stderr, flush=True)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m training.launch",
        usage="%(prog)s [options] --workers N -- COMMAND",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workers", type=int, required=True, help="how many processes")
    parser.add_argument("--logs", type=Path, help="folder of the logs (default: a new one under runs/)")
    parser.add_argument("--restarts", type=int, default=3, help="of all workers after one was lost (default: 3)")
    parser.add_argument("--grace", type=float, default=30, metavar="SECONDS", help="from TERM to KILL (default: 30)")
    parser.add_argument("command", nargs="+", help="program and arguments, after --")
    options = parser.parse_args(arguments)
    if options.workers < 1 or options.restarts < 0 or options.grace < 0:
        parser.error("--workers is at least 1, --restarts and --grace are not negative")
    logs = options.logs or Path("runs") / f"launch-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    _say(f"{options.workers} workers, logs in {logs}: {shlex.join(options.command)}")
    try:
        return launch(options.command, options.workers, logs, options.restarts, options.grace)
    except OSError as error:
        if not logs.is_dir():
            _say(f"error: the logs cannot be written: {error}. Choose another folder with --logs.")
            return 1
        missing = isinstance(error, FileNotFoundError)
        _say(f"error: there is no such command: {error}" if missing else f"error: {error}")
        return 127 if missing else 126


if __name__ == "__main__":
    sys.exit(main())
