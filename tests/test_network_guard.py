from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from tests.network_guard import NetworkRefused, is_loopback

OUTSIDE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): documentation only


@pytest.mark.parametrize("host", [None, "", "localhost", "127.0.0.1", "127.9.8.7", "::1", b"localhost", "0.0.0.0"])
def test_loopback_is_allowed(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", [OUTSIDE, "example.org", "localhost.example.org", "2001:db8::1", "10.0.0.1"])
def test_everything_else_is_not(host):
    assert not is_loopback(host)


def test_connections_and_lookups_are_refused_and_recorded(no_network):
    with socket.socket() as tcp:
        with pytest.raises(NetworkRefused, match="loopback"):
            tcp.connect((OUTSIDE, 80))
        with pytest.raises(NetworkRefused):
            tcp.connect_ex((OUTSIDE, 80))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, pytest.raises(NetworkRefused):
        udp.sendto(b"hello", (OUTSIDE, 53))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen("http://example.org/", timeout=1)
    assert len(no_network) == 4
    no_network.clear()


def test_loopback_still_works():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname(), timeout=5) as client:
            peer, _ = server.accept()
            with peer:
                client.sendall(b"ping")
                assert peer.recv(4) == b"ping"
