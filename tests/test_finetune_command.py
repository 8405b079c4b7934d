"""`lbzoo finetune`, and `lbzoo predict` with what it wrote."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from lbzoo import checkpoint
from lbzoo.transfer.classifier import TextClassifier
from tests.conftest import one_error
from tests.order_bert import pairs_and_numbers, small_bert
from tests.order_task import small_model, texts_and_labels

TEXTS, LABELS = texts_and_labels(40, names=("first", "second"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a model and a table."""
    checkpoint.save(small_model(), tmp_path / "base")
    with open(tmp_path / "train.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "words", "kind"), *((i, *row) for i, row in enumerate(zip(TEXTS, LABELS)))])
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ("finetune", "--model", "base", "--train", "train.csv", "--text-column", "words", "--label-column", "kind")
FAST = ("--unfreeze", "head", "--output", "my-model")


def test_a_table_becomes_a_model_that_predict_takes(run, place):
    status, out, err = run(*COMMAND, "--epochs", "1", "--unfreeze", "all", "--seed", "3", "--output", "my-model")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "trained on 36 texts, 2 labels" and lines[-1] == "saved to my-model"
    assert lines[1].startswith("held out 4 texts, frozen checkpoint accuracy ") and "accuracy" in lines[2]
    status, out, err = run("predict", "--model", "my-model", "--file", "train.csv", "--column", "words")
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    saved = TextClassifier.load("my-model")
    assert [row["label"] for row in rows] == saved.predict(TEXTS).tolist()
    assert {row["label"] for row in rows} <= {"first", "second"} and saved.random_state == 3
    assert run("info", "my-model")[0] == run("verify", "my-model")[0] == 0
    assert run("features", "-m", "my-model", "--output", "f.npy", "a")[0] == 0
    assert run("trace", "-m", "my-model", "xy")[0] == 0


def test_jsonl_with_labels_of_another_type_and_validation_data(run, place):
    rows = [{"text": text, "label": label == "first"} for text, label in zip(TEXTS, LABELS)]
    for name, part in (("train.jsonl", rows[:30]), ("held.jsonl", rows[30:])):
        (place / name).write_text("".join(json.dumps(row) + "\n" for row in part))
    status, out, err = run(
        *("finetune", "-m", "./base", "--train", "train.jsonl", "--validation", "held.jsonl", *FAST, "--half"),
        *("--class-weight", "balanced", "--language-model-weight", "0.5", "--learning-rate", "0.01"),
    )
    assert (status, err) == (0, "") and "trained on 30 texts" in out and "held out 10 texts" in out
    assert TextClassifier.load("my-model").classes_.tolist() == [False, True]
    assert checkpoint.read_folder("my-model").dtype == "float16"
    assert json.loads(run("predict", "-m", "my-model", "a", "--output-format", "jsonl")[1])["label"] in (True, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "basse"), "no checkpoint of this name"),
        (("--model", "./nowhere"), "no checkpoint folder"),
        (("--train", "nowhere.csv"), "nowhere.csv: No such file"),
        (("--validation", "nowhere.csv"), "nowhere.csv: No such file"),
        (("--text-column", "wordz"), "no column 'wordz'. Did you mean 'words'?"),
        (("--label-column", "kinds"), "no column 'kinds'. Did you mean 'kind'?"),
        (("--output", "full"), "holds other files"),
        (("--output", "train.csv"), "which is a file"),
        (("--output", "train.csv/my-model"), "train.csv: Not a directory. Choose another folder."),
        (("--output", "/proc/my-model"), "/proc: "),
        (("--train", "gaps.csv"), "row 2 (line 3) has no label in 'kind'"),
        (("--train", "one.csv"), "labels of two classes or more. Received: only 'a'"),
        (("--validation", "one.csv"), "validation labels that are not among the classes"),
        (("--train", "half.jsonl"), "half.jsonl, 'kind': number 0 is no label. Received: float 0.5"),
        (("--train", "mixed.jsonl"), "mixed.jsonl, 'kind' must all be of one type. Received: int 1, str 'a'"),
        (("--train", "header.csv"), "header.csv has no rows"),
    ],
)
def test_what_fails_is_one_line_and_status_1(run, place, arguments, message):
    (place / "full").mkdir()
    (place / "full" / "notes.txt").write_text("mine")
    (place / "gaps.csv").write_text("words,kind\nxy,a\nyx,\n")
    (place / "one.csv").write_text("words,kind\nxy,a\nyx,a\n")
    (place / "half.jsonl").write_text('{"words": "xy", "kind": 0.5}\n')
    (place / "mixed.jsonl").write_text('{"words": "xy", "kind": 1}\n{"words": "yx", "kind": "a"}\n')
    (place / "header.csv").write_text("words,kind\n")
    status, out, err = run(*COMMAND, *FAST, *arguments)
    assert status == 1 and out == "" and message in one_error(err)
    assert not (place / "my-model").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs", "0"),
        ("--learning-rate", "1"),
        ("--learning-rate", "fast"),
        ("--learning-rate", "nan"),
        ("--unfreeze", "some"),
        ("--seed", "-1"),
        ("--label-column", "words"),
    ],
)
def test_wrong_arguments_are_status_2(run, place, arguments):
    status, out, err = run(*COMMAND, *FAST, *arguments)
    assert status == 2 and out == "" and "error: " in err and "Traceback" not in err
    assert run("finetune", "--train", "train.csv")[0] == 2


def test_a_label_column_by_its_number_where_two_have_one_name(run, place):
    rows = "".join(f"{text},{label},other\n" for text, label in zip(TEXTS, LABELS))
    (place / "twice.csv").write_text("words,kind,kind\n" + rows)
    assert run(*COMMAND, *FAST, "--train", "twice.csv", "--label-column", "2")[0] == 0
    assert TextClassifier.load("my-model").classes_.tolist() == ["first", "second"]
    status, _, err = run(*COMMAND, *FAST, "--train", "twice.csv")
    assert status == 1 and "Pass --label-column 2 or 3" in one_error(err)


def test_a_folder_that_answers_otherwise_is_refused_by_predict(run, place):
    from tests.test_classifier_file import rewrite

    assert run(*COMMAND, *FAST)[0] == 0
    rewrite(place / "my-model", "config.json", lambda values: values.update(text="openai"))
    status, out, err = run("predict", "-m", "my-model", "a")
    assert status == 1 and out == "" and "does not answer as it did" in one_error(err)


@pytest.fixture
def pairs(place):
    """A BERT and a table of pairs with numbers and labels, in csv and jsonl."""
    small_bert().save_pretrained(place / "bert")
    rows = [(*pair, number, "more" if number > 1000 else "less") for pair, number in zip(*pairs_and_numbers(24))]
    names = ("one", "two", "number", "kind")
    with open(place / "pairs.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    (place / "pairs.jsonl").write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows))
    return place


PAIR_COLUMNS = ("--text-column", "one", "--text-pair-column", "two")


def test_pairs_and_numbers_on_a_bert(run, pairs):
    train = ("finetune", "-m", "bert", *PAIR_COLUMNS, *FAST, "--max-length", "12", "--label-column")
    status, out, err = run(*train, "number", "--train", "pairs.csv", "--task", "regress")
    assert (status, err) == (0, "") and "trained on 22 pairs, numbers" in out
    assert "held out 2 pairs, frozen checkpoint R^2 " in out
    files = ("predict", "-m", "my-model", "--column", "one", "--text-pair-column", "two", "--file")
    status, out, err = run(*files, "pairs.csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0 and err.startswith("lbzoo: note: pairs.csv has a column 'number' already")
    wanted = TextClassifier.load("my-model").predict([(row["one"], row["two"]) for row in rows])
    assert [float(row["lbzoo_number"]) for row in rows] == pytest.approx(wanted.tolist(), rel=1e-4)
    status, out, err = run(*train, "kind", "--train", "pairs.jsonl")
    assert (status, err) == (0, "") and "pairs, 2 labels" in out
    status, out, err = run(*files, "pairs.jsonl", "--output-format", "jsonl")
    assert (status, err) == (0, "") and {json.loads(line)["label"] for line in out.splitlines()} <= {"more", "less"}
    status, out, err = run("predict", "-m", "my-model", "a text")
    assert status == 2 and out == "" and "fine-tuned on pairs. Name the column" in one_error(err)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--text-pair-column", "three"), 1, "no column 'three'"),
        (("--text-pair-column", "words"), 2, "need a column of their own"),
        (("--text-pair-column", "kind"), 2, "need a column of their own"),
        (("--task", "regress"), 1, "no finite number in 'kind'. Received: '"),
        (("--max-length", "20"), 1, "max_length=20. Leave max_length out"),
    ],
)
def test_pairs_and_numbers_that_are_none(run, place, arguments, status, message):
    found, out, err = run(*COMMAND, *FAST, *arguments)
    assert found == status and out == "" and message in err and len(err.splitlines()) == 1


def test_a_bare_word_is_a_folder_only_where_the_zoo_has_no_such_name(run, place):
    shutil.copytree("base", "mlstm-512-reviews")
    assert json.loads(run("info", "mlstm-512-reviews", "--json")[1])["name"] == "mlstm-512-reviews"
    (place / "empty").mkdir()
    status, _, err = run("predict", "-m", "empty", "a")
    assert status == 1 and "no checkpoint of this name" in one_error(err)
