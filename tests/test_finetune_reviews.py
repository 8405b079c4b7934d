"""`python -m training.finetune_reviews` on made-up sets: what it chooses by, and that test is read only when asked."""

from __future__ import annotations

import json

import pytest

from lbzoo import checkpoint
from tests.order_task import small_model, texts_and_labels
from training import finetune_reviews


@pytest.fixture
def sets(tmp_path):
    """SST and IMDB as folders of the data, with texts of which the order of letters decides; no test split."""
    (tmp_path / "sst2_sentence").mkdir()
    for split, rows, seed in (("train", 64, 0), ("dev", 32, 1)):
        lines = "".join(f"{label},{text}\n" for text, label in zip(*texts_and_labels(rows, seed, ("0", "1"))))
        (tmp_path / "sst2_sentence" / f"{split}_binary_sent.csv").write_text("label,sentence\n" + lines)
    (tmp_path / "imdb").mkdir()
    rows = zip(*texts_and_labels(100, 2, ("neg", "pos")))
    (tmp_path / "imdb" / "train.tsv").write_text(
        "label\ttext\n" + "".join(f"{label}\t{text} {i}\n" for i, (text, label) in enumerate(rows))
    )
    return tmp_path


def test_it_chooses_on_dev_and_reads_test_only_when_asked(sets, capsys):
    model = str(checkpoint.save(small_model(), sets / "base"))
    options = ["--model", model, "--data", str(sets), "--task", "sst", "--epochs", "2", "--batch-size", "16"]
    options += ["--learning-rates", "1e-6", "3e-2", "--unfreeze", "all", "--output", str(sets / "out.json")]
    assert finetune_reviews.main(options) == 0
    (found,) = json.loads((sets / "out.json").read_text())
    assert [run["learning_rate"] for run in found["runs"]] == [1e-6, 3e-2]
    assert found["tuned"]["learning_rate"] == max(found["runs"], key=lambda run: run["dev"])["learning_rate"]
    assert "test" not in found["tuned"] and (found["train_rows"], found["dev_rows"]) == (64, 32)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"| sst | 64 | dev | {found['frozen']['dev']:.2f} | {found['tuned']['dev'][0]:.2f} (")
    assert finetune_reviews.main([*options, "--test"]) == 1  # there is no test split to read
    assert "test_binary_sent.csv" in capsys.readouterr().err
    lines = "".join(f"{label},{text}\n" for text, label in zip(*texts_and_labels(40, 7, ("0", "1"))))
    (sets / "sst2_sentence" / "test_binary_sent.csv").write_text("label,sentence\n" + lines)
    assert finetune_reviews.main([*options, "--test", "--rows", "32", "--learning-rates", "3e-2"]) == 0
    (found,) = json.loads((sets / "out.json").read_text())
    assert found["train_rows"] == 32 and len(found["tuned"]["test"]) == 1 and 0 < found["frozen"]["test"] <= 100


def test_the_dev_set_of_imdb_is_what_no_checkpoint_was_trained_on(sets):
    from training.sources import imdb_split

    train, dev = finetune_reviews.train_and_dev("imdb", sets, None)
    assert len(train[0]) + len(dev[0]) == 100 and not set(train[0]) & set(dev[0])
    assert [text.encode() for text in dev[0]] == [d.text.strip() for d in imdb_split(sets)[1]]
    fewer, _ = finetune_reviews.train_and_dev("imdb", sets, 10)
    assert len(fewer[0]) == 10 and set(fewer[0]) <= set(train[0])
