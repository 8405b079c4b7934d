"""The scripts in examples/ run, from any folder, with the checkpoints that ship here."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from lbzoo.transfer.glue import TASKS
from lbzoo.transfer.glue_files import read_split
from tests.conftest import ROOT

SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def example(monkeypatch, tmp_path, capsys):
    """Run a script's `main` in an empty folder: its standard output."""

    def example(name, *arguments):
        monkeypatch.chdir(tmp_path)
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main([str(each) for each in arguments])
        return capsys.readouterr().out

    return example


def read_rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_sentiment_of_a_csv(example, tmp_path):
    out = example("sentiment_of_csv")
    given, made = (read_rows(path) for path in (ROOT / "examples" / "reviews.csv", tmp_path / "with-sentiment.csv"))
    assert [{name: row[name] for name in ("text", "label")} for row in made] == given
    assert all((float(row["positive"]) > 0.5) == (row["sentiment"] == "positive") for row in made)
    right = sum(row["label"] == row["sentiment"] for row in made)
    assert right > 0.8 * len(made) and re.search(rf"^{len(made)} rows, \d+% positive: with-sentiment.csv$", out, re.M)


def test_own_labels(example, tmp_path):
    out = example("own_labels", "--epochs", 1)
    assert "epoch 0 (head): held-out accuracy" in out and "epoch 1 (head and 1 of 2 groups)" in out
    assert re.search(r"accuracy +[\d.]+ +12$", out, re.M) and (tmp_path / "my-model" / "model.safetensors").is_file()
    assert out.splitlines()[-1].split(" -> ")[1] in ("billing", "defect", "delivery")


def test_features_in_a_pipeline(example):
    out = example("features_in_a_pipeline")
    assert float(re.match(r"accuracy ([\d.]+) \(from", out)[1]) > 0.5
    answers = [line.split(" -> ")[1] for line in out.splitlines()[1:]]
    assert len(answers) == 3 and set(answers) <= {"billing", "defect", "delivery"}


def test_a_glue_folder(example, tmp_path):
    out = example("glue_folder", "--epochs", 1, "--output", "answers")
    assert re.search(r"^RTE dev accuracy: [\d.]+, always the commonest label: 0.5$", out, re.M)
    assert Path(out.splitlines()[-1]) == Path("answers", "RTE.tsv")
    assert len((tmp_path / "answers" / "RTE.tsv").read_text().splitlines()) == 5


@pytest.mark.parametrize("name", ["sentiment_of_csv", "own_labels", "features_in_a_pipeline"])
@pytest.mark.parametrize(
    "text, found", [("", "[]"), ("text,label\n", "[]"), ("body,label\nA lamp.,x\n", "['body', 'label']")]
)
def test_a_csv_file_without_what_is_needed_is_told(example, name, text, found, tmp_path, capsys):
    (tmp_path / "given.csv").write_text(text)
    with pytest.raises(SystemExit, match="2"):
        example(name, "given.csv")
    assert re.search(
        rf"error: given.csv needs rows and the columns? text.* Received: {re.escape(found)}", capsys.readouterr().err
    )


def test_a_csv_file_as_spreadsheets_write_it(example, tmp_path):
    (tmp_path / "given.csv").write_text("text\nA nice lamp.\n", encoding="utf-8-sig")
    example("sentiment_of_csv", "given.csv")
    assert read_rows(tmp_path / "with-sentiment.csv")[0]["text"] == "A nice lamp."


def test_the_made_up_glue_folder_has_the_official_layout():
    for name, rows in (("train", 24), ("dev", 8), ("test", 4)):
        split = read_split(TASKS["rte"], ROOT / "examples" / "glue", name)
        assert len(split.texts) == rows and split.damaged == 0
        assert split.labels is None or sorted(set(split.labels)) == list(TASKS["rte"].labels)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_does(path, tmp_path):
    """As a program, from another folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path), "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and f"examples/{path.name}" in done.stdout, done.stderr
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60 and list(Path(tmp_path).iterdir()) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_file_that_is_not_there_is_one_line(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(script), "nowhere"])
    with pytest.raises(SystemExit, match="^error: .*nowhere.*"):
        runpy.run_path(str(script), run_name="__main__")
