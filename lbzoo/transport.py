"""The one place that turns transport faults into DownloadError, and the one retry loop.

Faults are told by behaviour (a status code, an errno in the chain of causes) and by public names of
`huggingface_hub.errors`: the Hub client's own HTTP classes differ between its 1.x and 2.x. Nothing a server or client
says is copied into a message beyond a status, a system error or a class name, so no token or signed URL can get there.
"""

from __future__ import annotations

import dataclasses
import email.utils
import errno
import http.client
import logging
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lbzoo.errors import DownloadError, LbzooError

log = logging.getLogger("lbzoo")
Value = TypeVar("Value")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOCKED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
_CUT = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE)
_ONLINE = "Check the connection, the proxy settings and whether the host is up, then try again."


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long to try. Environment: LBZOO_TRIES, LBZOO_TIMEOUT, LBZOO_RETRY_WAIT, LBZOO_RETRY_LIMIT.

    Attributes:
        tries: attempts for one request.
        timeout: seconds without a byte before an attempt is given up.
        wait: seconds before the second attempt, doubled each time up to 8.
        limit: the longest wait, in seconds; a server that asks for more (Retry-After) is not waited for.
    """

    tries: int = 5
    timeout: float = 20.0
    wait: float = 0.5
    limit: float = 60.0

    @classmethod
    def from_environment(cls) -> Patience:
        """The defaults, changed by the environment where it holds positive numbers."""
        found: dict[str, Any] = {}
        for field, name in (
            ("tries", "LBZOO_TRIES"),
            ("timeout", "LBZOO_TIMEOUT"),
            ("wait", "LBZOO_RETRY_WAIT"),
            ("limit", "LBZOO_RETRY_LIMIT"),
        ):
            try:
                value = float(os.environ.get(name, ""))
            except ValueError:
                continue
            if 0 < value < 1e6:
                found[field] = max(1, int(value)) if field == "tries" else value
        return cls(**found)


@dataclasses.dataclass(frozen=True)
class Fault:
    """What went wrong: the code (see DownloadError), a sentence, what was received, what to do, whether to retry."""

    code: str
    what: str
    received: str
    advice: str
    passing: bool = False
    after: float | None = None


def retrying(
    action: Callable[[], Value],
    file: str,
    where: str,
    patience: Patience,
    passing: tuple[str, ...] | None = None,
) -> Value:
    """Run `action`; repeat it after faults that pass (cut, busy, 429, 5xx), then raise what is left as DownloadError.

    Args:
        action: makes one attempt; what it raises is judged by `diagnose`. An LbzooError is passed on as it is.
        file: what the message calls the file.
        where: what was tried, such as `https://host/user/repo at 0123abcd`.
        patience: how often, and how long to wait.
        passing: the codes that are worth another attempt, if `action` retries the others itself.
    """
    for attempt in range(1, patience.tries + 1):
        try:
            return action()
        except LbzooError:
            raise
        except Exception as error:
            fault = diagnose(error)
            if fault is None:
                raise
            wait = min(patience.wait * 2 ** (attempt - 1), 8.0) * random.uniform(0.8, 1.2)
            wait = max(wait, fault.after or 0.0)
            again = fault.passing and (passing is None or fault.code in passing)
            if not again or attempt == patience.tries or wait > patience.limit:
                raise failure(fault, file, where, attempt) from None
        log.info("%s: %s; attempt %d in %.1f s", file, fault.what, attempt + 1, wait)
        time.sleep(wait)
    raise AssertionError("unreachable")


def failure(fault: Fault, file: str, where: str, attempts: int = 1) -> DownloadError:
    """The DownloadError for a fault."""
    times = f" ({attempts} times)" if attempts > 1 else ""
    return DownloadError(
        f"{file}: {fault.what}. Tried: {where}{times}. Received: {fault.received}. {fault.advice}", code=fault.code
    )


def diagnose(error: BaseException) -> Fault | None:
    """What an exception from the Hub client, urllib or the file system means; None if it is none of theirs."""
    chain = list(_chain(error))
    for cause in chain:
        fault = _by_status(cause)
        if fault is not None:
            return fault
    for cause in chain:
        fault = _by_system(cause)
        if fault is not None:
            return fault
    from huggingface_hub import errors as hub

    if any(isinstance(cause, hub.OfflineModeIsEnabled) for cause in chain):
        return Fault("offline", "the network is switched off", "HF_HUB_OFFLINE", "Unset HF_HUB_OFFLINE and try again.")
    if any(isinstance(cause, hub.HFValidationError) for cause in chain):
        return Fault("not-found", "the Hub client refuses this name", "a malformed repository name", "Check the name.")
    if any(isinstance(cause, hub.FileMetadataError) for cause in chain):
        advice = "Is HF_ENDPOINT, a proxy or a login page in between?"
        return Fault("unreachable", "the server does not answer as a Hub does", "no commit or no ETag", advice)
    name, broken = type(error).__name__, "the transfer broke off, or gave another number of bytes than announced"
    if any(isinstance(cause, (http.client.HTTPException, OSError)) for cause in chain):
        return Fault("cut", broken, name, _ONLINE, passing=True)
    # RuntimeError is what hf_xet raises
    if type(error) is RuntimeError or type(error).__module__.partition(".")[0] not in ("builtins", "lbzoo"):
        return Fault("cut", broken, name, _ONLINE, passing=True)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        reason = getattr(error, "reason", None)  # urllib's URLError
        if isinstance(reason, BaseException) and id(reason) not in seen:
            yield reason
        error = error.__cause__ or error.__context__


def _by_status(error: BaseException) -> Fault | None:
    response = getattr(error, "response", None)
    source = error if response is None else response
    status = getattr(source, "status_code", None) or getattr(source, "code", None)
    if not isinstance(status, int) or not 300 <= status < 600:
        return None
    headers = getattr(source, "headers", None) or {}
    kind = str(headers.get("X-Error-Code") or "")
    of_hub = response is not None
    received = f"HTTP {status}" + (f" {kind}" if kind.isalpha() else "")
    if status in (401, 403):
        what = (
            "the repository is gated: its conditions must be accepted first"
            if kind == "GatedRepo"
            else ("access is denied: the repository is private or missing, or the token is wrong")
        )
        advice = "Log in with `hf auth login` or set HF_TOKEN to a token that may read it, and accept its conditions."
        advice = advice if of_hub else "Is a proxy in between? Try again later."
        return Fault("denied", what, received, advice)
    if status in (404, 410):
        what = {
            "RepoNotFound": "there is no such repository",
            "RevisionNotFound": "the repository has no such revision",
            "EntryNotFound": "the repository has no such file at this revision",
        }.get(kind, "there is no such file")
        advice = "Check the name and the revision; a private one needs a token." if of_hub else "It may have moved."
        return Fault("not-found", what, received, advice)
    after = _retry_after(headers)
    asked = "" if after is None else f", Retry-After {after:.0f} s"
    if status == 429:
        advice = f"Wait {after:.0f} s and try again." if after else "Wait a few minutes and try again."
        advice += " Logging in (`hf auth login`) raises the Hub's limit." if of_hub else ""
        return Fault("rate-limit", "the server limits the rate", received + asked, advice, passing=True, after=after)
    passing = status == 408 or status >= 500
    return Fault("server", "the server fails", received + asked, "Try again later.", passing=passing, after=after)


def _by_system(error: BaseException) -> Fault | None:
    if isinstance(error, (TimeoutError, socket.timeout)):
        advice = "Try again, or set LBZOO_TIMEOUT (and HF_HUB_DOWNLOAD_TIMEOUT) to more seconds."
        return Fault("timeout", "the server is silent for too long", "a timeout", advice, passing=True)
    if isinstance(error, socket.gaierror):
        return Fault("unreachable", "the host's address cannot be looked up", _system(error), _ONLINE, passing=True)
    if isinstance(error, ssl.SSLError):
        advice = "Check the clock, the proxy and the installed certificates."
        return Fault("certificate", "no secure connection can be made", type(error).__name__, advice)
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno in _FULL:
        return Fault(
            "disk-full", "there is no room left to write it", _system(error), "Free disk space, or set LBZOO_CACHE."
        )
    if error.errno in _LOCKED and (error.filename or error.errno == errno.EROFS):
        advice = f"Set LBZOO_CACHE to a folder that can be written. It could not be: {error.filename}."
        return Fault("cache", "the cache cannot be written", _system(error), advice)
    if error.errno in _CUT:
        return Fault("cut", "the transfer broke off", _system(error), _ONLINE, passing=True)
    if error.filename is not None:
        return Fault("cache", "the cache cannot be used", _system(error), f"Look at {error.filename}.")
    if error.errno > 0:
        return Fault("unreachable", "the server cannot be reached", _system(error), _ONLINE, passing=True)
    return None


def _system(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"{name} ({os.strerror(error.errno)})" if error.errno and error.errno > 0 else name


def _retry_after(headers: Any) -> float | None:
    """Seconds from a Retry-After header: a number, or an HTTP date."""
    value = str(headers.get("Retry-After") or "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, IndexError):
        return None
