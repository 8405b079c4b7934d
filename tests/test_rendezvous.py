"""Workers that wait for each other: threads here, each with a port of its own."""

import contextlib
import socket
import socketserver
import threading
import time

import pytest

from lbzoo.errors import TrainingError
from training import rendezvous
from training.launch import free_ports


def local(count):
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def port_of(address):
    return int(address.rpartition(":")[2])


def together(*starts):
    """Threads that `meet`, each given (addresses, index, seconds, when it starts): when each ended, or its error."""
    ends = {}

    def meet(key, addresses, index, seconds, after):
        time.sleep(after)
        try:
            rendezvous.meet(addresses, index, seconds)
            ends[key] = time.monotonic()
        except TrainingError as error:
            ends[key] = str(error)

    threads = [threading.Thread(target=meet, args=(key, *start)) for key, start in enumerate(starts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [ends[key] for key in range(len(starts))]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_go_on_once_the_last_has_come(count):
    addresses, begun, late = local(count), time.monotonic(), 0.4
    ends = together(*[(addresses, i, 30, late * (i == count - 1)) for i in range(count)])
    assert all(end >= begun + late for end in ends)


def test_those_that_do_not_come_are_named():
    addresses = local(4)
    first, second = together((addresses, 0, 0.8, 0), (addresses, 2, 0.8, 0))
    missing = f"worker 1 at {addresses[1]}, worker 3 at {addresses[3]}"
    assert f"worker 0 waited 0.8 s in vain for {missing}. Look" in first
    assert f"worker 2 waited 0.8 s in vain for {missing}. Look" in second


def test_while_it_waits_it_says_for_whom(capsys, monkeypatch):
    monkeypatch.setattr(rendezvous, "SILENT_SECONDS", 0.1)
    addresses = local(2)
    with pytest.raises(TrainingError):
        rendezvous.meet(addresses, 0, 0.5)
    assert capsys.readouterr().err == f"worker 0 waits for worker 1 at {addresses[1]}\n"


def test_a_port_that_is_taken_is_named():
    addresses = local(2)
    port = port_of(addresses[0])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(TrainingError, match=f"port {port}.*another port"):
        rendezvous.meet(addresses, 0, 0.3)


@pytest.mark.parametrize("answer", [b"", b"\x00\x00\x12\x04 not a greeting\n"])
def test_what_an_earlier_start_left_on_a_port_is_no_peer(answer):
    class Server(socketserver.StreamRequestHandler):
        def handle(self):
            self.wfile.write(answer)

    addresses = local(2)
    with socketserver.TCPServer(("127.0.0.1", port_of(addresses[1])), Server) as left:
        thread = threading.Thread(target=left.serve_forever, args=(0.05,))
        thread.start()
        try:
            with pytest.raises(TrainingError, match="in vain for worker 1"):
                rendezvous.meet(addresses, 0, 0.5)
        finally:
            left.shutdown()
            thread.join()


def test_another_list_of_workers_is_told_at_once():
    a, b, c = local(3)
    first, second = together(([a, b], 0, 30, 0), ([a, b, c], 1, 30, 0))
    assert "was started with another list of workers than worker 0. Give all the same" in first
    assert "was started with another list of workers than worker 1. Give all the same" in second


def test_a_number_that_was_given_twice_is_told_at_once():
    here, there = local(2)
    with served([here, there], 0, at=there), pytest.raises(TrainingError) as caught:  # should be worker 1
        rendezvous.meet([here, there], 0, 30)
    assert f"the worker at {there} was started as worker 0. Expected: worker 1" in str(caught.value)
    meeting = rendezvous._Meeting([here, there], 0, 30)
    meeting.called_by(meeting.greeting)
    with pytest.raises(TrainingError, match="two were started as worker 0"):
        meeting.wait()


@contextlib.contextmanager
def served(addresses, index, at):
    """The door of that worker, open at another address than its own."""
    with rendezvous._Door(("127.0.0.1", port_of(at)), rendezvous._Meeting(addresses, index, 5)) as door:
        thread = threading.Thread(target=door.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            door.shutdown()
            thread.join()
