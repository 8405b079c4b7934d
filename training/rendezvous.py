"""Workers wait for each other before TensorFlow's cluster starts, which would wait in silence and without end.

Every worker opens its port and calls at every other one's; each says which list of workers it was started with and
which of them it is. One goes on once it has called at all and all have called at it. So nobody leaves before a slower
one has seen it, and what an earlier start left behind, a TensorFlow server that still has the port, is no peer.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from typing import Optional

from lbzoo.errors import TrainingError

SILENT_SECONDS = 5  # of waiting, before it says for whom
_RETRY = 0.2  # seconds
_LONGEST = 200  # bytes of a greeting


def meet(addresses: Sequence[str], index: int, seconds: float) -> None:
    """Return once this worker and all others have found each other.

    Args:
        addresses: host:port of every worker. index: which of them this one is.
        seconds: the limit.

    Raises:
        TrainingError: this worker's port is taken; some did not come in time; one was started with another list, or is
            another worker than the list says. Each names them.
    """
    meeting = _Meeting(addresses, index, seconds)
    port = int(addresses[index].rpartition(":")[2])
    try:
        door = _Door(("", port), meeting)
    except OSError as error:
        raise TrainingError(
            f"worker {index} cannot listen on its port {port}: {error}. Another process has it, perhaps a worker of an "
            f"earlier run. End that one or choose another port."
        ) from error
    with door:
        threads = [threading.Thread(target=door.serve_forever, args=(0.05,), daemon=True)]
        threads += [threading.Thread(target=meeting.call, args=(i,), daemon=True) for i in meeting.missing]
        for thread in threads:
            thread.start()
        try:
            meeting.wait()
        finally:
            door.shutdown()


class _Meeting:
    """Who has called and who has been called at."""

    def __init__(self, addresses: Sequence[str], index: int, seconds: float) -> None:
        self.addresses, self.index, self.seconds = addresses, index, seconds
        self.roster = hashlib.sha256(" ".join(addresses).encode()).hexdigest()[:16]
        self.greeting = f"lbzoo {self.roster} {index}\n".encode()
        self.missing = [i for i in range(len(addresses)) if i != index]
        self._deadline = time.monotonic() + seconds
        self._changed = threading.Condition()
        self._called: set[int] = set()
        self._callers: set[int] = set()
        self._error: Optional[str] = None

    def wait(self) -> None:
        """Until nobody is missing."""
        say_at = time.monotonic() + SILENT_SECONDS
        with self._changed:
            while self.missing and self._error is None:
                now = time.monotonic()
                if now >= self._deadline:
                    raise TrainingError(
                        f"worker {self.index} waited {self.seconds:g} s in vain for {self._named()}. Look at their "
                        f"logs, whether they were started with the same list, and whether a firewall is between."
                    )
                if now >= say_at:
                    print(f"worker {self.index} waits for {self._named()}", file=sys.stderr, flush=True)
                    say_at = self._deadline
                self._changed.wait(min(say_at, self._deadline) - now)
            if self._error is not None:
                raise TrainingError(self._error)

    def call(self, peer: int) -> None:
        """Until worker `peer` has answered."""
        host, _, port = self.addresses[peer].rpartition(":")
        while time.monotonic() < self._deadline and self._error is None:
            left = max(_RETRY, self._deadline - time.monotonic())
            with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), left) as line:
                line.sendall(self.greeting)
                if self._heard(line.makefile("rb").readline(_LONGEST), peer):
                    return
            time.sleep(_RETRY)

    def called_by(self, greeting: bytes) -> None:
        """Note who has called here."""
        said = _parts(greeting)
        if said is None:
            return
        roster, peer = said
        if roster != self.roster:
            self._fail_for_lists(f"worker {peer}, which called here,")
        elif peer == self.index:
            self._fail(f"two were started as worker {peer}, this is one of them. Give each its own number.")
        else:
            self._note(self._callers, peer)

    def _heard(self, greeting: bytes, peer: int) -> bool:
        """Whether worker `peer`, called at, answered with a greeting."""
        said = _parts(greeting)
        if said is None:
            return False
        who = f"the worker at {self.addresses[peer]}"
        if said[0] != self.roster:
            self._fail_for_lists(who)
        elif said[1] != peer:
            self._fail(f"{who} was started as worker {said[1]}. Expected: worker {peer}. Give each its own number.")
        else:
            self._note(self._called, peer)
        return True

    def _fail_for_lists(self, who: str) -> None:
        self._fail(f"{who} was started with another list of workers than worker {self.index}. Give all the same.")

    def _note(self, into: set[int], peer: int) -> None:
        with self._changed:
            into.add(peer)
            both = self._called & self._callers
            self.missing = [i for i in self.missing if i not in both]
            self._changed.notify()

    def _fail(self, message: str) -> None:
        with self._changed:
            self._error = message
            self._changed.notify()

    def _named(self) -> str:
        return ", ".join(f"worker {i} at {self.addresses[i]}" for i in self.missing)


def _parts(greeting: bytes) -> Optional[tuple[str, int]]:
    """(list, number) of a greeting; None where it is none."""
    said = greeting.decode("utf-8", "replace").split()
    return (said[1], int(said[2])) if len(said) == 3 and said[0] == "lbzoo" and said[2].isdecimal() else None


class _Answer(socketserver.StreamRequestHandler):
    timeout = 10

    def handle(self) -> None:
        meeting = self.server.meeting
        with contextlib.suppress(OSError):
            greeting = self.rfile.readline(_LONGEST)
            self.wfile.write(meeting.greeting)
            meeting.called_by(greeting)


class _Door(socketserver.ThreadingTCPServer):
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], meeting: _Meeting) -> None:
        self.meeting, self.request_queue_size = meeting, len(meeting.addresses)
        super().__init__(address, _Answer)
