"""The bench of the download tests: one made-up checkpoint as a Hub repository and as an original release, on loopback.

`python -m tests.hub_bench FOLDER CACHE` makes one try in a process of its own, which a test may kill.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# the Hub's client reads these when it is imported
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DOWNLOAD_TIMEOUT"] = "1"

import numpy as np

from lbzoo import checkpoint, hub, manifest
from lbzoo.convert import openai_mlstm
from lbzoo.errors import LbzooError
from lbzoo.models.config import MLSTMConfig
from lbzoo.tensors import read_tensors
from tests.fake_hub import COMMIT, Server, git_sha1, running

ROOT = Path(__file__).resolve().parent.parent
REPO, SECRET = "lbzoo/tiny", "hf_SecretSecretSecret"
HUB, RELEASE = "hub", "release"
FAST = {
    "LBZOO_TRIES": "3",
    "LBZOO_TIMEOUT": "1",
    "LBZOO_RETRY_WAIT": "0.02",
    "LBZOO_RETRY_LIMIT": "3",
    "HF_TOKEN": SECRET,
    "HF_HUB_VERBOSITY": "critical",
}
BIG = {HUB: "model.safetensors", RELEASE: "2.npy"}


class Bench:
    """A server with the same weights as a Hub repository and as an original release, and an empty cache."""

    def __init__(self, server: Server, folder: Path, kind: str) -> None:
        self.server, self.folder, self.kind, self.cache = server, folder, kind, folder / "cache"
        config = MLSTMConfig(units=16, embedding_dim=8)
        generator = np.random.default_rng(0)
        self.tensors = {n: generator.normal(0, 0.3, s).astype("float32") for n, s in config.shapes().items()}
        made = checkpoint.write(folder / "made", config, "openai", self.tensors, card={"name": "tiny"})
        self.files = {path.name: path.read_bytes() for path in made.iterdir()}
        server.add_repo(REPO, self.files)
        npy = openai_mlstm.write_npy_folder(self.tensors, folder / "npy")
        self.release = {name: (npy / name).read_bytes() for name in openai_mlstm.FILES}
        for name, data in self.release.items():
            server.raw[f"/openai/tiny/{COMMIT}/model/{name}"] = data
        self.write_manifest()

    def write_manifest(self, published: bool = True, hashes: bool = True) -> None:
        """The manifest of the one checkpoint `tiny`, from which this process and its workers take their entry."""
        sources = {
            HUB: {"kind": "hub", "repo": REPO, "published": published, "revision": COMMIT},
            RELEASE: {
                "kind": "openai-release",
                "repo": "openai/tiny",
                "commit": COMMIT,
                "license": "MIT",
                "files": [
                    {"path": f"model/{name}", "size": len(data), "sha1": git_sha1(data)}
                    for name, data in self.release.items()
                ],
            },
        }
        files = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} if hashes else {}
            for name, data in self.files.items()
        }
        entry = {
            "name": "tiny",
            "description": "made-up weights",
            "architecture": "mlstm",
            "config": {"units": 16, "embedding_dim": 8},
            "text": "openai",
            "sources": [sources[self.kind]],
            "files": files if self.kind == HUB else {},
            "license": "MIT",
            "training_data": "none",
            "results": [],
            "status": "untested here",
            "untested": ["all of it"],
        }
        (self.folder / "manifest.json").write_text(json.dumps({"schema": 1, "checkpoints": [entry]}))

    @property
    def entry(self) -> manifest.Entry:
        return manifest.read_manifest(self.folder / "manifest.json")[0]

    def get(self, **options) -> Path:
        """Resolve, and hold the folder against the weights that were served."""
        return self.require_right(hub.resolve(self.entry, cache=self.cache, progress=False, **options).folder)

    def require_right(self, folder: Path) -> Path:
        info = checkpoint.verify(folder)
        shapes = info.config.shapes()
        for name, array in read_tensors(folder / "model.safetensors", shapes, info.dtype):
            assert array.tobytes() == self.tensors[name].tobytes(), name
        return folder

    def right(self, **options) -> str:
        self.get(**options)
        return "the right model"

    def fails(self, code: str, *words: str, **options) -> str:
        """The try must end in an error of this code that holds these words and no secret; gives its first line."""
        try:
            self.get(**options)
        except LbzooError as error:
            message = str(error)
            assert getattr(error, "code", "checkpoint") == code, (code, getattr(error, "code", None), message)
            assert SECRET not in message and "Received: " in message, message
            for word in words:
                assert word in message, (word, message)
            return f"{type(error).__name__} [{code}] {message.splitlines()[0]}"
        raise AssertionError("the try should have failed")

    def worker(self, *flags: str, **environment: str) -> subprocess.Popen:
        """The same try in a process of its own."""
        command = [sys.executable, "-m", "tests.hub_bench", str(self.folder), str(self.cache), *flags]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process: subprocess.Popen) -> str:
        """A worker's last line; its output must hold no secret."""
        output = process.communicate(timeout=60)[0]
        assert SECRET not in output, output
        return output.strip().splitlines()[-1] if output.strip() else ""

    def until(self, happened: Callable[[], object], process: subprocess.Popen) -> None:
        """Wait for something that a worker does."""
        deadline = time.monotonic() + 40
        while not happened():
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
            time.sleep(0.02)

    def weights_file(self) -> Path:
        (found,) = [p for p in self.cache.rglob("model.safetensors") if "tiny" in str(p) and "corrupt" not in str(p)]
        return found

    def spoil(self) -> None:
        """Change one bit of the cached weights, size and dates as they were."""
        path = Path(os.path.realpath(self.weights_file()))
        before = path.stat()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def quiet(self) -> None:
        """Good weather: the next try succeeds, and the one after it makes no request, also offline."""
        self.server.heal()
        self.get()
        self.server.log.clear()
        self.get()
        self.get(offline=True)
        assert not self.server.log, self.server.log
        assert not list(self.cache.rglob("*.part")) and not list(self.cache.rglob("*.incomplete"))


@contextlib.contextmanager
def bench(kind: str) -> Iterator[Bench]:
    """A fresh bench whose server is what lbzoo takes for the Hub and for GitHub, with short waits."""
    with running() as server, tempfile.TemporaryDirectory() as folder:
        changed = {**FAST, "HF_ENDPOINT": server.url, "LBZOO_RELEASE_ENDPOINT": server.url}
        removed = {name: os.environ.pop(name, None) for name in ("LBZOO_OFFLINE", "HF_HUB_OFFLINE", "LBZOO_CACHE")}
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            yield Bench(server, Path(folder), kind)
        finally:
            for name, value in {**before, **removed}.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def age(folder: Path) -> None:
    """Let everything in a folder look untouched for two hours, so that what a killed process left is swept away."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (time.time() - 7200,) * 2)


def listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in folder.rglob("*"))


def read_only(folder: Path, on: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod((0o555 if on else 0o755) if path.is_dir() else (0o444 if on else 0o644))
    for parent in folder.parents:  # the worker may be another user
        if parent.owner() == folder.owner() and str(parent).startswith(tempfile.gettempdir() + os.sep):
            parent.chmod(0o755)


def _worker(folder: Path, cache: Path, flags: list[str]) -> int:
    """One try in this process: prints `right` or the error."""
    made = Bench.__new__(Bench)
    made.folder, made.cache = folder, cache
    entry = made.entry
    if "--stop-in-conversion" in flags:
        from lbzoo import tensors

        def stop(path: Path, *_args, **_options) -> None:
            (path.parent / "half").write_bytes(b"half")
            time.sleep(60)

        tensors.write_tensors = stop
    if "--small-files" in flags:  # the kernel refuses to write more, as on a full disk
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if "--as-nobody" in flags and os.getuid() == 0:
        import huggingface_hub
        import tqdm  # noqa: F401

        with contextlib.suppress(Exception):  # a request that is refused imports all that may need root's rights
            huggingface_hub.get_hf_file_metadata("http://127.0.0.1:9/none")

        os.setgid(65534)
        os.setuid(65534)
    try:
        checkpoint.verify(hub.resolve(entry, cache=cache, progress=False).folder)
    except LbzooError as error:
        print(f"{type(error).__name__} [{getattr(error, 'code', 'checkpoint')}] {str(error).splitlines()[0]}")
        return 1
    print("right")
    return 0


if __name__ == "__main__":
    sys.exit(_worker(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
