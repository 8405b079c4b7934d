"""A Hub and a GitHub raw host on loopback, over real HTTP, that fail on demand: no test needs the network.

`Server()` serves the Hub's `resolve` and `api/models` routes for `repos` and plain files for `raw`, logs every request,
and applies the `Fault`s that wait for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

COMMIT = "a" * 40


@dataclasses.dataclass
class Seen:
    """One request that reached the server."""

    method: str
    path: str
    range: str | None
    authorization: str | None


@dataclasses.dataclass
class Fault:
    """What to do to the next `times` requests whose method and path fit.

    kind: cut (after `value` bytes), flip (a byte), grow (extra bytes), shrink (fewer bytes, honestly announced),
    status (`value`, with `headers`), redirect (to the server `value`), slow (half the body, then `value` seconds),
    hang (`value` seconds before a word).
    """

    kind: str
    value: object = None
    method: str = "GET"
    path: str = ""
    times: int = 1
    headers: dict = dataclasses.field(default_factory=dict)


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def etag_of(name: str, data: bytes) -> str:
    """The Hub's ETag: SHA-256 of files in large-file storage, git's blob SHA-1 of the others."""
    return hashlib.sha256(data).hexdigest() if name.endswith(".safetensors") else git_sha1(data)


class Server:
    """`url` is its address by IP number, `other_url` the same server under another host name."""

    def __init__(self) -> None:
        self.repos: dict[str, dict] = {}
        self.raw: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.log: list[Seen] = []
        self.lock = threading.Lock()
        handler = type("BoundHandler", (_Handler,), {"fake": self})
        self._http = _QuietServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self.other_url = f"http://localhost:{self.port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def add_repo(self, repo: str, files: dict[str, bytes], commit: str = COMMIT, branch: str = "main") -> None:
        """Add a commit with its files, and point a branch at it."""
        found = self.repos.setdefault(repo, {"commits": {}, "refs": {}})
        found["commits"][commit] = dict(files)
        found["refs"][branch] = commit

    def fail(self, kind: str, value: object = None, **more) -> None:
        """Queue a fault; see `Fault`."""
        self.faults.append(Fault(kind, value, **more))

    def take(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and method in fault.method.split("|") and fault.path in path:
                    fault.times -= 1
                    return fault
        return None

    def heal(self) -> None:
        """Good weather: no faults, an empty log."""
        self.faults.clear()
        self.log.clear()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address) -> None:
        pass  # clients that are killed or give up are what the tests do


class _Handler(http.server.BaseHTTPRequestHandler):
    fake: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *args) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        headers = self.headers
        self.fake.log.append(Seen(self.command, path, headers.get("Range"), headers.get("Authorization")))
        fault = self.fake.take(self.command, path)
        if fault and fault.kind == "status":
            return self.answer(int(fault.value), b"", fault.headers)
        if fault and fault.kind == "hang":
            time.sleep(float(fault.value))
        if path.startswith("/api/models/"):
            return self.api(path)
        found = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$", path)
        if found and path not in self.fake.raw:
            return self.resolve(*found.groups(), fault)
        if path not in self.fake.raw:
            return self.answer(404, b"404: Not Found")
        if fault and fault.kind == "redirect":
            return self.answer(302, b"", {"Location": fault.value + path})
        return self.body(self.fake.raw[path], {}, fault)

    def resolve(self, repo: str, revision: str, name: str, fault: Fault | None) -> None:
        if repo not in self.fake.repos:
            return self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        commits, refs = self.fake.repos[repo]["commits"], self.fake.repos[repo]["refs"]
        commit = refs.get(revision, revision)
        if commit not in commits:
            return self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if name not in commits[commit]:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        data = commits[commit][name]
        headers = {"ETag": f'"{etag_of(name, data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if name.endswith(".safetensors"):
            headers.update({"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(data))})
        if fault and fault.kind == "redirect":
            self.fake.raw[f"/cdn/{name}"] = data
            return self.answer(302, b"", {**headers, "Location": f"{fault.value}/cdn/{name}"})
        return self.body(data, headers, fault)

    def api(self, path: str) -> None:
        found = re.match(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?$", path)
        repo = self.fake.repos.get(found.group(1)) if found else None
        if repo is None:
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        revision = found.group(2) or "main"
        commit = repo["refs"].get(revision, revision)
        if commit not in repo["commits"]:
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        names = [{"rfilename": name} for name in repo["commits"][commit]]
        answer = {"id": found.group(1), "sha": commit, "siblings": names, "tags": [], "private": False}
        return self.answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def body(self, data: bytes, headers: dict, fault: Fault | None) -> None:
        kind = fault.kind if fault else None
        if kind == "flip":
            data = data[:-1] + bytes([data[-1] ^ 1])
        elif kind == "grow":
            data = data + b"tail"
        elif kind == "shrink":
            data = data[:-1]
        status, asked = 200, re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(asked.group(1)) if asked else 0
        if 0 < start < len(data):
            status, headers = 206, {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
            data = data[start:]
        if kind not in ("cut", "slow") or self.command == "HEAD":
            return self.answer(status, data, headers)
        self.head(status, len(data), headers)
        sent = min(int(fault.value), len(data) - 1) if kind == "cut" else len(data) // 2
        self.wfile.write(data[:sent])
        self.wfile.flush()
        if kind == "slow":
            time.sleep(float(fault.value))
            return self.wfile.write(data[sent:])
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def answer(self, status: int, body: bytes, headers: dict | None = None) -> None:
        self.head(status, len(body), headers or {})
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, status: int, length: int, headers: dict) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server for the length of a `with` block."""
    server = Server()
    try:
        yield server
    finally:
        server.close()
