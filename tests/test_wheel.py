"""The wheel as a user gets it: what is inside, and that it works in a new environment outside the checkout."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import lbzoo

pytestmark = pytest.mark.slow

SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "lbzoo")
MANIFEST = "checkpoints_manifest.json"
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
LEAVE_OUT = shutil.ignore_patterns("__pycache__", "*.py[cod]", ".*", "*.egg-info")


def build(kind: str, folder: Path, out: Path) -> Path:
    """Build `kind` (sdist or wheel) of the source tree `folder` with this environment's setuptools: no network."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(out)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sources(root: Path, tmp_path_factory) -> Path:
    """A copy of the sources, so that a build leaves nothing in the checkout and takes nothing stale from it."""
    folder = tmp_path_factory.mktemp("sources")
    for name in (*SOURCES, MANIFEST):
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=LEAVE_OUT)
        else:
            shutil.copy(root / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory) -> Path:
    """The wheel that pip makes of the source archive: both are tested on one way."""
    folder = tmp_path_factory.mktemp("built")
    archive = build("sdist", sources, folder)
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return build("wheel", unpacked, folder / "dist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory) -> Path:
    """A new environment with the wheel in it; the dependencies are this environment's, seen through a path file."""
    folder = tmp_path_factory.mktemp("environment")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = Path(
        subprocess.run(
            [str(venv / "bin" / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    # Path files are not followed through a path file, so the checkout's own editable install stays out of sight.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
        + ["--no-deps", "--no-index", "--force-reinstall", str(wheel)],
        check=True,
    )
    return venv


def run(venv: Path, *command: str, **options) -> subprocess.CompletedProcess[str]:
    """Run a program of `venv` in an empty folder, without the checkout in sight."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LBZOO"))}
    folder = venv.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [str(venv / "bin" / command[0]), *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_package_and_nothing_else(wheel, sources):
    package = sources / "lbzoo"
    expected = {str(Path("lbzoo") / path.relative_to(package)) for path in package.rglob("*.py")}
    expected |= {str(Path("lbzoo") / path.relative_to(package)) for path in package.glob("bundled/*/*")}
    expected |= {"lbzoo/py.typed", f"lbzoo/{MANIFEST}"}
    packed = {name for name in names(wheel) if ".dist-info/" not in name}
    assert packed == expected
    assert len(names(wheel)) == len(set(names(wheel)))


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < 25e6


def test_every_folder_of_the_package_is_one_that_python_imports(sources):
    """A folder without `__init__.py` would be left out of the wheel in silence."""
    folders = {path.parent for path in (sources / "lbzoo").rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").is_file()) == []


def test_the_manifest_and_the_data_are_the_checkouts(wheel, root):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"lbzoo/{MANIFEST}") == (root / MANIFEST).read_bytes()
        for name in archive.namelist():
            if name.startswith("lbzoo/bundled/"):
                assert archive.read(name) == (root / name).read_bytes(), name


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def requirements(wheel: Path) -> list[Requirement]:
    return [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist")]


def test_metadata(wheel):
    head = metadata(wheel)
    assert (head["Name"], head["Version"]) == ("lbzoo", lbzoo.__version__)
    assert SpecifierSet(head["Requires-Python"]) == SpecifierSet(">=3.9,<3.12")
    assert set(head.get_all("Provides-Extra")) == {"test", "plot", "gpu", "benchmark", "glue"}
    assert any(n.endswith("LICENSE") for n in names(wheel))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt")]
        assert "lbzoo = lbzoo.cli:main" in archive.read(name).decode()


def test_the_ranges_are_the_tested_ones(wheel):
    ranges = {r.name: r.specifier for r in requirements(wheel) if "extra" not in str(r.marker)}
    assert ranges == {
        name: SpecifierSet(text)
        for name, text in {
            "tensorflow": ">=2.15,<2.16",
            "keras": ">=2.15,<2.16",
            "tensorflow-addons": ">=0.23,<0.24",
            "tensorflow-text": ">=2.15,<2.16",
            "setuptools": "<81",
            "huggingface-hub": ">=1,<3",
            "scikit-learn": ">=1.3",
            "scipy": ">=1.9",
            "safetensors": ">=0.4",
            "tqdm": ">=4.60",
            "numpy": "<2",
        }.items()
    }


@pytest.mark.parametrize(
    ("platform", "machine", "addons", "text"),
    [
        ("linux", "x86_64", True, True),
        ("linux", "aarch64", False, False),
        ("darwin", "x86_64", True, True),
        ("darwin", "arm64", True, False),
        ("win32", "AMD64", False, False),
    ],
)
def test_parts_without_a_wheel_are_left_out_there(wheel, platform, machine, addons, text):
    there = {"extra": "", "sys_platform": platform, "platform_machine": machine}
    kept = {r.name for r in requirements(wheel) if r.marker is None or r.marker.evaluate(there)}
    assert ("tensorflow-addons" in kept, "tensorflow-text" in kept) == (addons, text)
    assert {"tensorflow", "keras", "safetensors", "scikit-learn", "huggingface-hub", "tqdm", "numpy"} <= kept
    assert "pytest" not in kept and "torch" not in kept


def test_a_dirty_tree_gives_the_same_wheel(wheel, sources, tmp_path):
    """What an earlier build, an editor or a test left behind does not get in, and the bytes are the same."""
    dirty = tmp_path / "dirty"
    shutil.copytree(sources, dirty, ignore=shutil.ignore_patterns("*.egg-info", "build"))
    stale = dirty / "build" / "lib" / "lbzoo" / "deleted_last_week.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("raise SystemExit('stale')\n")
    for folder in ("training", "runs", "tests"):
        (dirty / folder).mkdir()
        (dirty / folder / "__init__.py").touch()
    (dirty / "lbzoo" / "__pycache__").mkdir()
    (dirty / "lbzoo" / "__pycache__" / "cli.cpython-39.pyc").write_bytes(b"")
    again = build("wheel", dirty, tmp_path / "dist")
    assert names(again) == names(wheel)
    assert again.read_bytes() == wheel.read_bytes()


def test_it_works_in_a_new_environment_outside_the_checkout(installed, root):
    where = run(installed, "python", "-c", "import lbzoo; print(lbzoo.__file__)").stdout.strip()
    assert Path(where).resolve().is_relative_to(installed.resolve()), where
    run(installed, "python", "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('training') is not None)")
    listed = run(installed, "lbzoo", "list").stdout
    manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    assert manifest["checkpoints"]
    for entry in manifest["checkpoints"]:
        assert entry["name"] in listed


def test_it_predicts_there(installed, root):
    texts = ["A wonderful film, I loved every minute of it.", "A terrible waste of money, it broke after one day."]
    rows = list(csv.DictReader(run(installed, "lbzoo", "predict", *texts).stdout.splitlines()))
    assert [row["text"] for row in rows] == texts
    assert [row["label"] for row in rows] == ["positive", "negative"]
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
