"""The rules of the house that a reader relies on: which way imports go, and that a file can be read in one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = sorted((ROOT / "lbzoo").rglob("*.py"))
EVERYTHING = sorted(
    path
    for top in ("lbzoo", "training", "benchmarks", "examples", "tests", "scripts")
    for path in (ROOT / top).rglob("*.py")
)


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at any depth, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", LIBRARY, ids=label)
def test_only_one_file_names_the_engine(path):
    if label(path) != "lbzoo/_keras.py":
        for name in imported(path):
            assert name.split(".")[0] not in ("keras", "tf_keras", "tensorflow_addons"), name
            assert not name.startswith("tensorflow.keras"), name


@pytest.mark.parametrize("path", LIBRARY, ids=label)
def test_the_library_stands_alone_and_loads_no_code_from_files(path):
    forbidden = {"training", "benchmarks", "tests", "scripts", "pickle", "marshal", "dill", "requests", "httpx"}
    assert not {name.split(".")[0] for name in imported(path)} & forbidden


@pytest.mark.parametrize("path", [path for path in EVERYTHING if label(path).split("/")[0] != "tests"], ids=label)
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", EVERYTHING, ids=label)
def test_files_parse_as_the_oldest_supported_python(path):
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
