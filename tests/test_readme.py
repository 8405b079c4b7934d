"""README does what it says: its blocks run, its commands are the Makefile's, its table is the manifest's."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclasses.dataclass(frozen=True)
class Block:
    mark: str
    language: str
    code: str
    line: int


def blocks(text: str) -> list[Block]:
    return [
        Block(m["mark"] or "", m["language"], m["code"], text.count("\n", 0, m.start("code")) + 1)
        for m in FENCE.finditer(text)
    ]


def runnable(language: str) -> list[Block]:
    return [block for block in blocks(README) if block.language == language and block.mark == "run"]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run in `folder`, with this environment's programs first in PATH and the checkout's lbzoo."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def shell_commands(code: str) -> list[str]:
    """The commands of a shell block, without comments and prompts."""
    lines = (re.sub(r"\s+#\s.*$", "", line).strip() for line in code.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_every_python_block_is_run_or_says_why_not():
    for block in blocks(README):
        if block.language == "python":
            assert block.mark == "run" or block.mark.startswith("not run: "), f"README.md:{block.line}"


@pytest.mark.slow
def test_python_blocks_run(tmp_path):
    """One after the other in one process, as a reader would paste them."""
    code = "\n".join(block.code for block in runnable("python"))
    assert code
    done = run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", runnable("sh"), ids=lambda block: f"line-{block.line}")
def test_shell_blocks_run(block, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "lbzoo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lbzoo "$@"\n')
    (tmp_path / "lbzoo").chmod(0o755)
    script = f'set -eu\nPATH="{tmp_path}:$PATH"\n{block.code}'
    done = run(["sh", "-c", script], tmp_path)
    assert done.returncode == 0, f"README.md:{block.line}\n{done.stdout}{done.stderr}"
    assert done.stdout.strip()


def test_the_commands_shown_first_are_the_makefiles():
    """`make demo` and `make test` come first; the lines after them do the same as the Makefile's recipes."""
    with_make, without_make = [shell_commands(block.code) for block in blocks(README) if block.language == "sh"][:2]
    assert with_make == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    venv, install, demo, test = without_make
    assert re.fullmatch(r"python3\.\d+ -m venv \.venv", venv)
    assert install == '.venv/bin/python -m pip install -e ".[test]"'
    assert f"\t{demo}\n" in makefile
    assert f"\t{test}\n" in makefile
    assert test == ".venv/bin/python -m pytest"


def test_ci_runs_the_readmes_test_command():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert any(re.match(r'stage "[^"]*" make test\b', line) for line in lines)


def test_links_into_the_checkout_exist():
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_the_model_table_is_the_manifests():
    done = run([sys.executable, "scripts/model_table.py", "--check"], ROOT)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_table_shows_what_the_manifest_says():
    from scripts.model_table import END, START, with_table

    assert with_table(f"a\n{START}\nold\n{END}\nb\n", ()).startswith(f"a\n{START}\n| name |")
    assert with_table(f"a\n{START}\nold\n{END}\nb\n", ()).endswith(f"{END}\nb\n")
    for broken in ("", START, END, START + END + END):
        with pytest.raises(ValueError, match="each of these lines once"):
            with_table(broken, ())
