"""The rules of the house that a reader relies on: which way imports go, and that a file can be read in one sitting.

That one file names the engine, and what else the library never imports, is in `test_import.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
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


# Each imports from its own line and from those above it.
LAYERS = (
    "errors",
    "files fields tensors",
    "models text convert optimizers _keras",
    "manifest registry",
    "folder checkpoint",
    "cache transport hub_client release hub",
    "loading",
    "states bert_states features fill_mask trace",
    "transfer",
    "verify tables",
    "console doctor commands converting zoo cli __main__",
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
UPWARDS = {  # what a person looks for on the object at hand
    ("lbzoo/models/base.py", "lbzoo.checkpoint"),  # model.save_pretrained
    ("lbzoo/checkpoint.py", "lbzoo.transfer.probe"),  # load_probe
}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module of lbzoo that runs when this code does, at any depth: all but what only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module != "lbzoo" else [f"lbzoo.{alias.name}" for alias in node.names]
            yield from names
        yield from imported(node)


@pytest.mark.parametrize("path", LIBRARY, ids=label)
def test_imports_go_one_way(path):
    own = path.relative_to(ROOT / "lbzoo").parts[0].removesuffix(".py")
    if own == "__init__":  # resolves names lazily, all of them
        return
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        top, _, rest = name.partition(".")
        if top == "lbzoo" and rest and (label(path), name) not in UPWARDS:
            assert LEVEL[rest.split(".")[0]] <= LEVEL[own], f"{label(path)} imports {name}"


@pytest.mark.parametrize("path", EVERYTHING, ids=label)
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", EVERYTHING, ids=label)
def test_files_parse_as_the_oldest_supported_python(path):
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
