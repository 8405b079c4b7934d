"""Reading of the labelled review sets; rows written for the test."""

from __future__ import annotations

import gzip
import json
import lzma

import numpy as np
import pytest

from lbzoo.errors import ConfigError, TableError
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.transfer.reviews import evaluate, frozen_probe_results, read_task, review_text


@pytest.mark.parametrize(
    "title, text, wanted",
    [
        ("Great fun", "We play it.", "Great fun. We play it."),
        ("Great fun!", "We play it.", "Great fun! We play it."),
        ("Is it good?", "No.", "Is it good? No."),
        (" Great ", " Yes. ", "Great. Yes."),
        ("", "We play it.", "We play it."),
        (None, "We play it.", "We play it."),
        ("Great", "", "Great"),
        ("", "", ""),
        ("GREAT FUN", "Great fun, we play it.", "Great fun, we play it."),
        ("Great", "Greatest of all.", "Great. Greatest of all."),
        ("Great", "Great", "Great"),
    ],
)
def test_review_text(title, text, wanted):
    assert review_text(title, text) == wanted


SST = 'label,sentence\n1,"Fine, really."\n0,Dull.\n1,"She said ""wow""."\n'


@pytest.fixture
def sst(tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}_binary_sent.csv").write_text(SST, encoding="utf-8")
    return tmp_path


def test_sst(sst):
    wanted = (["Fine, really.", "Dull.", 'She said "wow".'], ["positive", "negative", "positive"])
    assert read_task("sst", sst, "test") == wanted
    assert read_task("sst", str(sst), "valid") == read_task("sst", sst, "dev") == wanted


IMDB = 'label\tid\trating\ttext\nneg\t0\t2\tOdd " quote\u0085 and\u2028 line\x0b.\npos\t1\t9\tGood<br />film\r\n'


@pytest.mark.parametrize("suffix, opener", [("", open), (".xz", lzma.open), (".gz", gzip.open)])
def test_imdb_tsv(tmp_path, suffix, opener):
    with opener(tmp_path / f"test.tsv{suffix}", "wb") as file:
        file.write(IMDB.encode())
    texts, labels = read_task("imdb", tmp_path, "test")
    assert texts == ['Odd " quote\u0085 and\u2028 line\x0b.', "Good<br />film"]
    assert labels == ["negative", "positive"]


@pytest.mark.parametrize("root", [".", "aclImdb"])
def test_imdb_as_released(tmp_path, root):
    for kind, name, text in [
        ("neg", "10_1", "later"),
        ("neg", "2_3", "sooner"),
        ("pos", "0_9", "go\u0096od"),
        ("unsup", "0_0", "?"),
    ]:
        path = tmp_path / root / "train" / kind / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    assert read_task("imdb", tmp_path, "train") == (["sooner", "later", "go\u0096od"], ["negative"] * 2 + ["positive"])


def amazon_row(split="test", label=1, title="", text="Works well.", **more):
    return {"source": "made", "title": title, "text": text, "label": label, "split": split, **more}


def write_amazon(folder, rows, suffix="", opener=open):
    with opener(folder / f"amazon_reviews.jsonl{suffix}", "wb") as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


@pytest.mark.parametrize("suffix, opener", [("", open), (".xz", lzma.open), (".gz", gzip.open)])
def test_amazon(tmp_path, suffix, opener):
    rows = [
        amazon_row(title="Good"),
        amazon_row(label=None),
        amazon_row("train"),
        amazon_row(label=0, text="No\u2028.", title=None),
        amazon_row("valid"),
    ]
    write_amazon(tmp_path, rows, suffix, opener)
    assert read_task("amazon", tmp_path, "test") == (["Good. Works well.", "No\u2028."], ["positive", "negative"])
    assert read_task("amazon", tmp_path, "dev") == read_task("amazon", tmp_path, "valid")


def test_unknown_task_or_split(sst):
    with pytest.raises(ConfigError, match=r"Received: 'yelp'. Known: sst, imdb, amazon"):
        read_task("yelp", sst, "test")
    with pytest.raises(ConfigError, match=r"sst has the splits train, dev, test. Received: split='unsup'"):
        read_task("sst", sst, "unsup")
    with pytest.raises(ConfigError, match="imdb has the splits train, test"):
        read_task("imdb", sst, "dev")


@pytest.mark.parametrize("task, wanted", [("sst", "_binary_sent.csv"), ("imdb", "aclImdb"), ("amazon", ".jsonl")])
def test_missing_folder_and_files(tmp_path, task, wanted):
    with pytest.raises(TableError, match=f"no folder. Wanted in it: .*{wanted}"):
        read_task(task, tmp_path / "none", "test")
    with pytest.raises(TableError, match=f"does not exist. Wanted: .*{wanted}"):
        read_task(task, tmp_path, "test")


@pytest.mark.parametrize(
    "name, task, data, message",
    [
        ("test_binary_sent.csv", "sst", b"label,text\n1,a\n", "lacks the column sentence"),
        ("test_binary_sent.csv", "sst", b"", "lacks the column label, sentence"),
        ("test_binary_sent.csv", "sst", b"label,sentence\n", "no labelled row"),
        ("test_binary_sent.csv", "sst", b"label,sentence\n1,a\n2,b\n", "line 3 .*Received: '2'"),
        ("test_binary_sent.csv", "sst", b"label,sentence\n1\n", "line 2 .* 1 cells only"),
        ("test_binary_sent.csv", "sst", b"label,sentence\n1,\xff\n", "not UTF-8"),
        ("test.tsv", "imdb", b"label\ttext\npos\n", "line 2 .* has 1 cells; the header has 2"),
        ("test.tsv", "imdb", b"label\tbody\n", "lacks the column text"),
        ("test.tsv.xz", "imdb", b"not xz", "cannot be read"),
        ("test.tsv.xz", "imdb", lzma.compress(IMDB.encode())[:-20], "cannot be read"),
        ("test.tsv.gz", "imdb", gzip.compress(IMDB.encode())[:-9], "cannot be read"),
        ("test.tsv.gz", "imdb", gzip.compress(IMDB.encode())[:10] + b"\xff" * 30, "cannot be read"),
        ("amazon_reviews.jsonl", "amazon", b'{"title": ""}\n', "line 1 .* lacks text, label, split"),
        ("amazon_reviews.jsonl", "amazon", b"\n[1]\n", "line 2 .* lacks title"),
        ("amazon_reviews.jsonl", "amazon", b"{\n", "line 1 .* is not JSON"),
        ("amazon_reviews.jsonl", "amazon", json.dumps(amazon_row(text=3)).encode(), "must be strings"),
        ("amazon_reviews.jsonl", "amazon", json.dumps(amazon_row(label=5)).encode(), "Received: 5"),
        ("amazon_reviews.jsonl", "amazon", json.dumps(amazon_row("train")).encode(), "no labelled row of amazon test"),
    ],
)
def test_broken_files(tmp_path, name, task, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TableError, match=message) as error:
        read_task(task, tmp_path, "test")
    assert str(tmp_path) in str(error.value)


def test_evaluate():
    class Parrot:
        def predict(self, texts):
            return np.array(texts)

    assert evaluate(Parrot(), ["positive", "negative", "x", "positive"], ["positive"] * 4) == 0.5
    with pytest.raises(ConfigError, match="2 texts, 1 labels"):
        evaluate(Parrot(), ["a", "b"], ["a"])
    with pytest.raises(ConfigError, match="0 texts"):
        evaluate(Parrot(), [], [])


def separable(rows, seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(rows) % 2)
    words = {1: "zzzz", 0: "mmmm"}
    return [f"{'ab'[rng.integers(2)] * rng.integers(1, 9)} {words[int(label)]}" for label in labels], labels.tolist()


@pytest.mark.parametrize("task", ["sst", "imdb", "amazon"])
def test_frozen_probe_results(tmp_path, task):
    sizes = {"train": 200, "dev": 40, "test": 60}
    sets = {split: separable(rows, seed) for seed, (split, rows) in enumerate(sizes.items())}
    if task == "amazon":
        names = {"dev": "valid"}
        write_amazon(
            tmp_path, [amazon_row(names.get(s, s), y, text=t) for s, pair in sets.items() for t, y in zip(*pair)]
        )
    for split, (texts, labels) in sets.items():
        if task == "sst":
            rows = "".join(f"{y},{t}\n" for t, y in zip(texts, labels))
            (tmp_path / f"{split}_binary_sent.csv").write_text("label,sentence\n" + rows)
        elif task == "imdb" and split != "dev":
            rows = "".join(f"{'pos' if y else 'neg'}\t0\t0\t{t}\n" for t, y in zip(texts, labels))
            (tmp_path / f"{split}.tsv").write_text("label\tid\trating\ttext\n" + rows)
    model = MLSTMLanguageModel(MLSTMConfig(units=12, embedding_dim=8), seed=3)
    found = frozen_probe_results(model, task, tmp_path)
    held = {"train": 180, "dev": 20} if task == "imdb" else {}
    assert found["rows"] == {**sizes, **held}
    assert found["accuracy"] > 90 and found["C"] in found["probe"].dev_accuracy
    assert found["nonzero"] == found["probe"].nonzero > 0
    assert found["probe"].classes == ["negative", "positive"]
    assert 0 <= found["best_unit"]["unit"] < 12 and found["best_unit"]["accuracy"] > 60
    other = frozen_probe_results(model, task, tmp_path, state="hidden", pool="mean")
    assert (other["probe"].state, other["probe"].pool) == ("hidden", "mean")


@pytest.mark.parametrize(
    "task, folder, split, rows, positive",
    [
        ("sst", "sst2_sentence", "train", 6920, 3610),
        ("sst", "sst2_sentence", "dev", 872, 444),
        ("sst", "sst2_sentence", "test", 1821, 909),
        ("imdb", "imdb", "train", 25000, 12500),
        ("imdb", "imdb", "test", 25000, 12500),
        ("amazon", "amazon", "valid", 1775, 1337),
        ("amazon", "amazon", "test", 1765, 1356),
    ],
)
def test_the_real_sets(data_dir, task, folder, split, rows, positive):
    texts, labels = read_task(task, data_dir / folder, split)
    assert (len(texts), labels.count("positive"), labels.count("negative")) == (rows, positive, rows - positive)
    assert all(texts)
