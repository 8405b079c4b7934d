"""No test leaves this machine: every connection, datagram and name look-up off loopback is refused and recorded."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

ATTEMPTS: list[str] = []

_IP_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_originals: dict[str, Any] = {}


class NetworkRefused(OSError):
    """A connection off loopback; an OSError, so that the code under test meets what an unplugged machine gives."""


def is_loopback(host: Any) -> bool:
    """Whether a host name or address (str, bytes or None) stays on this machine."""
    if host is None:
        return True
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in ("", "localhost", "ip6-localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(host).split("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(what: str) -> NetworkRefused:
    ATTEMPTS.append(what)
    return NetworkRefused(f"a test may only reach loopback. Received: {what}. Use a server on 127.0.0.1 instead.")


def install() -> None:
    """Patch `socket` for the rest of the process; a second call changes nothing."""
    if _originals:
        return
    for name in ("connect", "connect_ex", "sendto"):
        _originals[name] = getattr(socket.socket, name)
        setattr(socket.socket, name, _guarded(name))
    _originals["getaddrinfo"] = socket.getaddrinfo
    socket.getaddrinfo = _guarded_getaddrinfo


def _guarded(name: str) -> Any:
    original = _originals[name]

    def method(self: socket.socket, *args: Any) -> Any:
        address = args[-1]  # connect(address), sendto(data, [flags,] address)
        if self.family in _IP_FAMILIES and isinstance(address, tuple) and not is_loopback(address[0]):
            raise _refuse(f"{name} to {address[0]}:{address[1]}")
        return original(self, *args)

    return method


def _guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_loopback(host) and host != socket.gethostname():
        raise _refuse(f"look-up of {host}")
    return _originals["getaddrinfo"](host, *args, **kwargs)
