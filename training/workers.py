"""Several processes that do tasks as they come, with few tasks in memory at a time; one process needs no pool."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Optional

from lbzoo.errors import TrainingError

DEFAULT_LIMIT = 6  # processes unless asked for more: what fits into 500 MB


def default_workers() -> int:
    """One for each core that this process may use, at most DEFAULT_LIMIT."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, DEFAULT_LIMIT)


class Workers:
    """A pool for a `with` block. `count` 1 does the tasks right here.

    The processes end with this one, killed or not.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: Optional[futures.ProcessPoolExecutor] = None

    def __enter__(self) -> Workers:
        if self.count > 1:
            context = multiprocessing.get_context("spawn")  # the same on every platform
            self._pool = futures.ProcessPoolExecutor(self.count, context, _start)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """`function(task)` of every task, in the order in which they are done. An error in one is raised here.

        Raises:
            TrainingError: a process was killed.
        """
        if self._pool is None:
            yield from map(function, tasks)
            return
        running: set[futures.Future] = set()
        try:
            for task in tasks:
                running.add(self._pool.submit(function, task))
                if len(running) > self.count + 1:  # one in each process, two on their way
                    done, running = futures.wait(running, return_when=futures.FIRST_COMPLETED)
                    yield from (each.result() for each in done)
            for each in futures.as_completed(running):
                yield each.result()
        except BrokenProcessPool as error:
            raise TrainingError(
                f"one of {self.count} worker processes was killed, perhaps for want of memory. Start again with fewer: "
                "--workers."
            ) from error


def _start() -> None:
    """In a new process: leave Ctrl-C to the parent, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
