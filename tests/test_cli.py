"""The command line, called in-process; the few subprocesses are for what only a process of its own can show."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import lbzoo
from lbzoo import checkpoint, cli, commands
from lbzoo.errors import UsageError
from lbzoo.transfer.probe import Probe
from tests.conftest import one_error

REVIEWS = [
    ("1", "Great, really.", "a"),
    ("2", 'It says "new",\nit is not.', "b"),
    ("3", "", "c"),
    ("4", "x" * 300, "d"),
    ("5", "naïve 😀<br />good\u2028line", "e"),
]


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "text", "tag"), *REVIEWS])
    return path


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


# the shell of it


def test_help_version_and_no_command(run):
    assert run("--help")[0] == 0
    assert run("--version")[:2] == (0, f"lbzoo {lbzoo.__version__}\n")
    status, out, _ = run()
    assert status == 0 and "COMMAND" in out


@pytest.mark.parametrize(
    "command", ["list", "info", "download", "verify", "predict", "features", "trace", "evaluate", "doctor"]
)
def test_each_command_explains_itself_with_an_example(run, command):
    status, out, _ = run(command, "--help")
    assert status == 0 and f"example: lbzoo {command}" in " ".join(out.split())


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["predict", "--nonsense"],
        ["predict", "text", "--file", "x.csv"],
        ["predict", "text", "--column", "text"],
        ["predict", "-", "--file", "x.csv"],
        ["predict", "a", "--batch-size", "0"],
        ["predict", "a", "--format", "xlsx"],
        ["features", "a", "--output-format", "npy"],
        ["verify"],
        ["verify", "--all", "some-name"],
        ["evaluate", "--task", "sst"],
        ["trace", "a", "--unit", "-1"],
    ],
)
def test_wrong_arguments_are_status_2_without_traceback(run, argv):
    status, out, err = run(*argv)
    assert status == 2 and out == "" and "error: " in err and "Traceback" not in err


def test_no_texts_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(UsageError, match="no texts"):
        commands._open_input(cli.build_parser().parse_args(["predict"]))


def test_faults_of_the_program_keep_their_traceback(run, monkeypatch):
    monkeypatch.setattr("lbzoo.zoo.run_list", lambda args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("list")


def test_debugging_shows_the_traceback(run, monkeypatch):
    monkeypatch.setenv("LBZOO_DEBUG", "1")
    with pytest.raises(lbzoo.UnknownModelError):
        run("info", "nonsense")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "lbzoo: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (OSError(28, "No space left on device"), 1, "lbzoo: error: No space left on device\n"),
        (MemoryError(), 1, "lbzoo: error: MemoryError\n"),
    ],
)
def test_status_of_what_happens_outside(run, monkeypatch, error, status, said):
    def fail(args):
        raise error

    monkeypatch.setattr(cli, "abandon_stdout", lambda: None)
    monkeypatch.setattr("lbzoo.zoo.run_list", fail)
    assert run("list") == (status, "", said)


# predict


def test_predict_arguments(run, probed):
    status, out, err = run("predict", "good", "bad\nvery", "", "-m", probed)
    assert (status, err) == (0, "")
    rows = rows_of(out)
    assert [row["text"] for row in rows] == ["good", "bad\nvery", ""]
    assert {row["label"] for row in rows} <= {"positive", "negative"}
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


def expected(probed):
    classifier = lbzoo.SentimentClassifier(probed)
    texts = [text for _, text, _ in REVIEWS]
    return classifier.predict(texts).tolist(), classifier.predict_proba(texts).max(axis=1)


def assert_answers(rows, probed):
    labels, probabilities = expected(probed)
    assert [(row["id"], row["text"], row["tag"]) for row in rows] == REVIEWS
    assert [row["label"] for row in rows] == labels
    np.testing.assert_allclose([float(row["probability"]) for row in rows], probabilities, atol=2e-6)


def test_predict_file_to_standard_output(run, probed, reviews):
    status, out, err = run("predict", "--file", reviews, "--column", "text", "--output", "-", "--model", probed)
    assert (status, err) == (0, "")
    assert_answers(rows_of(out), probed)


@pytest.mark.parametrize("argv", [["-"], [], ["--file", "-"], ["--format", "csv"]])
def test_predict_standard_input(run, probed, reviews, argv):
    status, out, err = run("predict", *argv, "-c", "text", "-m", probed, stdin=reviews.read_bytes())
    assert (status, err) == (0, "")
    assert_answers(rows_of(out), probed)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "csv.gz"])
def test_predict_to_every_format_and_back(run, probed, reviews, tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    assert run("predict", "-f", reviews, "-o", path, "-m", probed) == (0, "", "")
    from lbzoo.tables import open_table

    with open_table(path) as table:
        assert_answers([dict(row.items) for row in table], probed)


def test_predict_jsonl_to_csv_keeps_the_columns(run, probed):
    lines = b'{"text": "a", "stars": 5}\n{"stars": null, "text": "b", "more": [1]}\n'
    status, out, _ = run("predict", "-m", probed, stdin=lines)
    rows = rows_of(out)
    assert status == 0
    assert list(rows[0]) == ["text", "stars", "more", "label", "probability"]
    assert [(row["text"], row["stars"], row["more"]) for row in rows] == [("a", "5", ""), ("b", "", "[1]")]


def test_predict_lines_of_text(run, probed):
    status, out, _ = run("predict", "-m", probed, stdin="one\n\nzwei, drei\u0085x\n".encode())
    assert status == 0 and [row["text"] for row in rows_of(out)] == ["one", "", "zwei, drei\u0085x"]


def test_predict_keeps_a_label_column(run, probed):
    status, out, err = run("predict", "-c", "text", "-m", probed, stdin=b"text,label\nfine,mine\n")
    row = rows_of(out)[0]
    assert status == 0 and row["label"] == "mine" and row["lbzoo_label"] in ("positive", "negative")
    assert err.startswith("lbzoo: note: ") and "'lbzoo_label'" in err


def test_predict_header_only(run, probed):
    assert run("predict", "-c", "text", "-m", probed, stdin=b"text,n\n") == (0, "text,n,label,probability\n", "")


def test_predict_in_place(run, probed, reviews):
    assert run("predict", "-f", reviews, "-o", reviews, "-m", probed) == (0, "", "")
    with open(reviews, encoding="utf-8", newline="") as file:
        assert_answers(list(csv.DictReader(file)), probed)


def test_predict_failure_leaves_no_half_file(run, probed, reviews, tmp_path):
    with open(reviews, "a", encoding="utf-8") as file:
        file.write("6,too,many,cells\n")
    before = sorted(tmp_path.iterdir())
    status, out, err = run("predict", "-f", reviews, "-o", tmp_path / "out.csv", "-m", probed)
    assert (status, out) == (1, "")
    assert "reviews.csv, row 6 (line 8)" in one_error(err)
    assert sorted(tmp_path.iterdir()) == before


def test_predict_many_rows_in_order(run, probed):
    lines = "".join(f"{'word ' * (i * 7 % 23)}{i}\n" for i in range(3000))
    status, out, _ = run("predict", "-m", probed, stdin=lines.encode())
    assert status == 0 and [row["text"] for row in rows_of(out)] == lines.splitlines()


def test_predict_on_a_terminal_prints_short_lines(run, probed, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    status, out, _ = run("predict", "a\x1b[31mb\nc", "long " * 50, "-m", probed)
    first, second = out.splitlines()
    assert status == 0 and first.endswith("  a?[31mb c") and len(second) <= 60 and second.endswith("...")
    assert run("predict", "a", "-m", probed, "-o", "-")[1].startswith("text,label,probability\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"title,body\na,b\n", ["no column 'text'", "'title', 'body'"]),
        (b"", ["is empty"]),
        (bytes(range(256)) * 20, ["binary"]),
        (None, ["No such file"]),
    ],
    ids=["missing column", "empty", "binary", "missing file"],
)
def test_bad_files_are_one_line_and_status_1(run, probed, tmp_path, content, said):
    path = tmp_path / "in.csv"
    if content is not None:
        path.write_bytes(content)
    status, out, err = run("predict", "-f", path, "-c", "text", "-m", probed)
    assert (status, out) == (1, "")
    assert all(part in one_error(err) for part in [str(path), *said])


def test_a_folder_is_no_file(run, probed, tmp_path):
    assert "directory" in one_error(run("predict", "-f", tmp_path, "--format", "csv", "-m", probed)[2])
    assert "does not exist" in one_error(run("predict", "a", "-o", tmp_path / "no" / "out.csv", "-m", probed)[2])
    assert "--output-format" in one_error(run("predict", "a", "-o", tmp_path / "out.xlsx", "-m", probed)[2])


@pytest.mark.parametrize("command", [["predict", "a", "-m"], ["features", "a", "-m"], ["trace", "a", "-m"], ["info"]])
def test_a_misspelt_model_name(run, command):
    status, out, err = run(*command, "mlstm-4096-amazn")
    assert (status, out) == (1, "")
    assert "Did you mean mlstm-4096-amazon?" in one_error(err)


def test_closed_pipe_is_quiet_and_so_is_tensorflow(probed, tmp_path):
    (tmp_path / "in.txt").write_text("some text or other\n" * 20_000)
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "lbzoo", "predict", "-f", str(tmp_path / "in.txt"), "-m", probed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"text,label,probability\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_sigterm_leaves_the_folder_as_it_was(probed, tmp_path):
    (tmp_path / "in.txt").write_text("some text or other\n" * 200_000)
    command = [sys.executable, "-m", "lbzoo", "predict", "-f", "in.txt", "-o", "out.csv", "-m", probed]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        while process.poll() is None and len(list(tmp_path.iterdir())) == 1:
            time.sleep(0.05)
        process.terminate()
    assert process.returncode == 143
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


# features


def test_features_to_npy(run, probed, reviews, tmp_path):
    path = tmp_path / "features.npy"
    assert run("features", "-f", reviews, "-o", path, "-m", probed, "--batch-size", "2") == (0, "", "")
    found = np.load(path)
    wanted = lbzoo.FeatureExtractor(probed).transform([text for _, text, _ in REVIEWS])
    assert found.dtype == np.float32 and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-4)


def test_features_to_csv_and_jsonl_are_the_same_numbers(run, probed, tmp_path):
    options = ["-m", probed, "--state", "hidden", "--pool", "mean"]
    status, out, _ = run("features", "a", "b\nc", *options)
    rows = rows_of(out)
    assert status == 0 and [row["text"] for row in rows] == ["a", "b\nc"]
    status, out, _ = run("features", "a", "b\nc", *options, "--output-format", "jsonl")
    from_jsonl = np.float32([json.loads(line)["features"] for line in out.splitlines()])
    from_csv = np.float32([[float(row[f"feature_{i}"]) for i in range(from_jsonl.shape[1])] for row in rows])
    wanted = lbzoo.FeatureExtractor(probed, state="hidden", pool="mean").transform(["a", "b\nc"])
    np.testing.assert_array_equal(from_csv, from_jsonl)
    np.testing.assert_allclose(from_csv, wanted, atol=1e-6)


def test_features_of_no_rows(run, probed, tmp_path):
    path = tmp_path / "features.npy"
    assert run("features", "-c", "text", "-o", path, "-m", probed, stdin=b"text,n\n")[0] == 0
    assert np.load(path).shape == (0, 8)


# trace


def test_trace(run, probed, tmp_path):
    status, out, err = run("trace", "good <stuff>", "-m", probed)
    assert (status, err) == (0, "") and "good[" in out and "\x1b" not in out
    page = tmp_path / "trace.html"
    assert run("trace", "good <stuff>", "-m", probed, "--html", page)[:2] == (0, "")
    assert "&lt;" in page.read_text(encoding="utf-8") and "<stuff>" not in page.read_text(encoding="utf-8")
    status, out, _ = run("trace", "-", "-m", probed, "-o", "-", "--unit", "3", stdin="é".encode())
    assert [row["byte"] for row in rows_of(out)] == ["10", "32", "195", "169", "32"]
    assert "unit must be" in one_error(run("trace", "a", "-m", probed, "--unit", "8")[2])


# evaluate


@pytest.fixture
def sst(tmp_path):
    folder = tmp_path / "sst"
    folder.mkdir()
    for split, rows in (("train", 30), ("dev", 10), ("test", 20)):
        lines = [f'{i % 2},"{("awful", "lovely")[i % 2]}, number {i}"' for i in range(rows)]
        (folder / f"{split}_binary_sent.csv").write_text("label,sentence\n" + "\n".join(lines) + "\n")
    return folder


def test_evaluate_with_the_checkpoints_probe(run, probed, sst):
    status, out, err = run("evaluate", "--model", probed, "--task", "sst", "--data", sst)
    assert (status, err) == (0, "")
    texts, labels = zip(*((r["sentence"], r["label"]) for r in rows_of((sst / "test_binary_sent.csv").read_text())))
    wanted = ["positive" if label == "1" else "negative" for label in labels]
    score = lbzoo.SentimentClassifier(probed).score(list(texts), wanted)
    assert out.splitlines()[-1] == f"accuracy {100 * score:.2f}"


def test_evaluate_fits_a_probe_where_there_is_none(run, tiny_checkpoint, sst):
    status, out, err = run("evaluate", "-m", tiny_checkpoint, "--task", "sst", "--data", sst)
    assert status == 0 and "has no probe" in err
    assert out.splitlines()[-1].startswith("accuracy ")
    assert run("evaluate", "-m", tiny_checkpoint, "--task", "sst", "--data", sst, "--split", "dev")[0] == 2


@pytest.mark.parametrize(
    ("classes", "link", "answers"), [(["bad", "good"], "logistic", "bad, good"), ([], "identity", "numbers")]
)
def test_evaluate_refuses_a_checkpoint_that_answers_otherwise(run, tiny_model, sst, tmp_path, classes, link, answers):
    probe = Probe(np.ones((1, tiny_model.config.units), np.float32), np.zeros(1, np.float32), classes, link=link)
    checkpoint.save(tiny_model, tmp_path / "other", probe=probe)
    status, out, err = run("evaluate", "--model", tmp_path / "other", "--task", "sst", "--data", sst)
    assert status == 2 and out == "" and f"answers with {answers}. --fit" in one_error(err)


def test_evaluate_without_the_data(run, probed, tmp_path):
    status, _, err = run("evaluate", "--model", probed, "--task", "imdb", "--data", tmp_path)
    assert status == 1 and str(tmp_path) in one_error(err)
    status, _, err = run("evaluate", "--model", probed, "--task", "sst", "--data", tmp_path, "--split", "best")
    assert status == 1 and "split" in one_error(err)
