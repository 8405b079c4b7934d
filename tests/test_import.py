"""Importing lbzoo is light, and touches nothing of its host."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import lbzoo

PACKAGE = Path(lbzoo.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
HEAVY = (
    *("huggingface_hub", "keras", "numpy", "pandas", "safetensors", "sklearn"),
    *("tensorflow", "tensorflow_addons", "tensorflow_text", "tqdm"),
)
NOT_LIBRARY = ("cli.py", "console.py", "__main__.py")  # the command line owns its process


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=PACKAGE.parent, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy_modules(code):
    tail = f"\nimport sys, json; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    return json.loads(run(code + tail).splitlines()[-1])


@pytest.mark.parametrize(
    "code",
    [
        "import lbzoo",
        "import lbzoo; lbzoo.list_models(); lbzoo.list_models('mlstm-*'); str(lbzoo.info('mlstm-4096-amazon'))",
        "import lbzoo; lbzoo.LbzooError, lbzoo.MLSTMConfig(units=8), lbzoo.DEFAULT_MODEL, dir(lbzoo)",
        "import lbzoo.loading, lbzoo.registry, lbzoo.manifest, lbzoo.folder",
    ],
)
def test_light_uses_import_nothing_heavy(code):
    assert heavy_modules(code) == []


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "--json"], ["info", "mlstm-4096-amazon"]])
def test_light_commands_import_nothing_heavy(arguments):
    assert (
        heavy_modules(
            f"import runpy, sys; sys.argv = ['lbzoo', *{arguments!r}]\n"
            "try: runpy.run_module('lbzoo', run_name='__main__')\n"
            "except SystemExit as end: assert not end.code, end.code"
        )
        == []
    )


def test_import_is_quick():
    """In processor time, which a busy machine does not stretch as it does the clock's."""
    code = "import time; t = time.process_time(); import lbzoo; lbzoo.list_models(); print(time.process_time() - t)"
    assert min(float(run(code)) for _ in range(4)) < 0.1


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["info", "mlstm-4096-amazon"]])
def test_light_commands_answer_at_once(arguments):
    resource = pytest.importorskip("resource")

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "lbzoo", *arguments], check=True, capture_output=True, cwd=PACKAGE.parent)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(4)) < 0.3


def imported(tree):
    """Every module that a source file names in an import, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "__import__"):
                yield str(node.args[0].value)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_one_file_names_the_engine(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set(imported(tree))
    engine = {name for name in names if {"keras", "tensorflow_addons", "tf_keras"} & set(name.split("."))}
    through_tf = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("keras", "estimator")
        and isinstance(node.value, ast.Name)
        and node.value.id in ("tf", "tensorflow")
    ]
    if path.name != "_keras.py":
        assert not engine and not through_tf
    assert not any(name.split(".")[0] in ("training", "benchmarks", "tests") for name in names)
    code_from_files = {"pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal"}
    assert not (code_from_files | {"requests", "httpx"}) & {name.split(".")[0] for name in names}


def at_import(tree):
    """The nodes that run when a module is imported: all but the bodies of functions."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from at_import(node)


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.name not in NOT_LIBRARY], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_the_library_leaves_environment_and_logging_alone(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    changes = ("logging.basicConfig", "logging.disable", "logging.captureWarnings", "os.putenv", "os.unsetenv")
    for node in ast.walk(tree):
        targets = getattr(node, "targets", None) or ([node.target] if isinstance(node, ast.AugAssign) else [])
        for target in targets:  # os.environ[...] = and del os.environ[...]
            assert not (isinstance(target, ast.Subscript) and dotted(target.value).endswith("environ")), node.lineno
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            assert name not in changes, node.lineno
            assert not name.endswith(("environ.setdefault", "environ.update", "environ.pop", "environ.clear")), (
                node.lineno
            )
            assert not name.endswith((".setLevel", ".addHandler", ".set_verbosity")), node.lineno
    for node in at_import(tree):
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        assert name != "os.environ", f"line {node.lineno} reads the environment at import"
        if isinstance(node, ast.Call):
            assert not dotted(node.func).startswith(("warnings.", "random.seed", "np.random.seed", "socket.")), (
                node.lineno
            )


def test_importing_every_light_module_changes_neither_environment_nor_logging():
    run(
        "import logging, os\n"
        "def state(): return dict(os.environ), logging.root.level, list(logging.root.handlers)\n"
        "before = state()\n"
        "import lbzoo, lbzoo.checkpoint, lbzoo.cli, lbzoo.hub, lbzoo.loading, lbzoo.tensors, lbzoo.transfer.probe\n"
        "lbzoo.list_models(); lbzoo.info('mlstm-4096-amazon')\n"
        "now = state()\n"
        "assert now == before, 'changed'\n"
    )


def test_every_public_name_resolves():
    assert set(lbzoo.__all__) == set(lbzoo._HOME_OF) and sorted(lbzoo.__all__) == sorted(set(lbzoo.__all__))
    assert set(lbzoo.__all__) <= set(dir(lbzoo))
    for name in lbzoo.__all__:
        value = getattr(lbzoo, name)
        assert value is not None and getattr(value, "__doc__", None)
    assert issubclass(lbzoo.CheckpointError, lbzoo.LbzooError) and lbzoo.__version__ == "0.1.0"


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        lbzoo.lod()
    assert not hasattr(lbzoo, "nothing")
