"""Reviews to shards where something is wrong: rows, files, settings, a killed process; whole or not at all."""

import gzip
import os
import signal
import subprocess
import sys
import time

import pytest

from lbzoo.errors import ConfigError, TableError, TrainingError
from lbzoo.transfer.reviews import review_text
from tests.made_reviews import amazon, documents, expected, fingerprint, jsonl, make, policy, reviews
from training import inputs, prepare_reviews
from training.documents import SPLITS, Policy
from training.inputs import Fields
from training.prepare_reviews import prepare
from training.shards import new_folder, open_shards

BROKEN = [
    (b'{"text": "cut', "not JSON"),
    (b'["text"]', "a JSON list"),
    (b'{"txt": "good"}', "no field"),
    (b'{"text": 5}', "no string"),
    (b'{"text": "caf\xe9"}', "not UTF-8"),
    (b'{"text": "good", "split": "holdout"}', "--split hash"),
    (b"[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize("row, why", BROKEN, ids=[why for _, why in BROKEN])
def test_a_broken_row_is_counted_with_file_and_line(tmp_path, row, why):
    good = jsonl({"text": f"good {i}"} for i in range(150)).splitlines(keepends=True)
    output, index = make(tmp_path, b"".join([*good[:41], row + b"\n", *good[41:]]))
    assert index["broken"]["rows"] == 1 and index["rows"] == 151
    first = index["broken"]["first"][0]
    assert (first["source"], first["line"]) == ("reviews.jsonl", 42) and why in first["why"]
    assert len(documents(output)) == 150
    assert "line 42" in prepare_reviews.summary(index)


def test_broken_rows_of_csv_cost_only_themselves(tmp_path):
    lines = [b"text,stars"] + [f"good {i},5".encode() for i in range(300)]
    lines[100] = b'"stray" quote,5'
    lines[200] = b"too,many,cells"
    lines[300] = b"caf\xe9,5"
    output, index = make(tmp_path, b"\n".join(lines), "reviews.csv")
    assert [(each["line"], each["why"][:10]) for each in index["broken"]["first"]] == [
        (101, "',' expect"),
        (201, "3 cells wh"),
        (301, "not UTF-8"),
    ]
    assert len(documents(output)) == 297


def test_a_quotation_mark_that_nothing_closes_counts_every_line_it_swallows(tmp_path):
    lines = [b"text,stars"] + [f"good {i},5".encode() for i in range(300)]
    lines[100] = b'"open,5'
    with pytest.raises(TableError, match="201 of 300 rows"):
        make(tmp_path, b"\n".join(lines), "reviews.csv")


def test_too_many_broken_rows_stop_the_run_and_leave_nothing(tmp_path):
    data = jsonl({"text": f"good {i}"} for i in range(95)) + b"{\n" * 5
    with pytest.raises(TableError, match=r"5 of 100 rows .* 0\.01 .*reviews.jsonl line 96: not JSON"):
        make(tmp_path, data)
    assert [path.name for path in tmp_path.iterdir()] == ["reviews.jsonl"]
    _, index = make(tmp_path, data, max_broken=0.05)
    assert index["broken"]["rows"] == 5


def test_the_wrong_format_stops_early(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_reviews, "_BUFFERS", 1 << 20)
    with pytest.raises(TableError, match=r"of (1\d{5}) rows .*not JSON"):
        make(tmp_path, b"not json\n" * 300_000)
    seen = prepare_reviews.Tally(lines=5000, broken=100)
    assert not prepare_reviews._hopeless(seen, 0.1, 0.01)  # 50,000 rows may hold 500
    assert prepare_reviews._hopeless(seen, 0.9, 0.01)
    assert not prepare_reviews._hopeless(seen, 0.9, 0.02)


@pytest.mark.parametrize("format", ["jsonl", "txt"])
def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch, format):
    monkeypatch.setattr(inputs, "LONGEST_LINE", 3000)
    monkeypatch.setattr("training.documents.LONGEST_LINE", 3000)
    line = {"jsonl": b'{"text": "%s"}\n', "txt": b"%s\n"}[format]
    data = line % b"first" + line % (b"x" * 9000) + line % (b"y" * 3001) + line % b"last"
    for size in (100, 5000, 1 << 20):
        found, _ = inputs.find_inputs([write(tmp_path / f"a.{format}", data)])
        tallies = []
        texts = []
        for block in inputs.blocks(found, Fields(), size):
            read, _, tally = prepare_reviews.read_block(block, policy())
            texts += read
            tallies.append(tally)
        assert texts == [b"\n first ", b"\n last "]
        assert sorted(fault[1] for tally in tallies for fault in tally.first) == [2, 3]
        assert sum(tally.lines for tally in tallies) == 4


def write(path, data):
    path.write_bytes(data)
    return path


# what cannot be read


def test_damaged_and_misnamed_files_are_errors_that_name_the_file(tmp_path):
    whole = gzip.compress(amazon(reviews(2000)))
    for name, data, message in (
        ("a.jsonl.gz", whole[:-200], r"a\.jsonl\.gz cannot be read to its end"),
        ("b.jsonl.gz", b'{"text": "plain"}\n', "not compressed as its name says"),
        ("c.parquet", b"PAR1", "does not tell its format"),
        ("d.csv", b"stars,words\n5,good\n", "no column reviewText or text.*stars, words"),
        ("e.jsonl", b"", "no text"),
    ):
        with pytest.raises(TableError, match=message):
            make(tmp_path, data, name)
    with pytest.raises(TableError, match="no such file or folder"):
        prepare([tmp_path / "none"], tmp_path / "out", policy())
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_settings_that_make_no_sense_are_refused(tmp_path):
    data = amazon(reviews(3))
    for options in (
        {"chosen": policy(shards=(0, 1, 1))},
        {"chosen": policy(shards=(1, -1, 1))},
        {"chosen": Policy("reviews", Fields(), -1, (1, 1, 1))},
        {"chosen": Policy("mine", Fields(), 1, (1, 1, 1))},
        {"workers": 0},
        {"max_broken": 2.0},
    ):
        with pytest.raises(ConfigError):
            make(tmp_path, data, **options)


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="no folder of shards"):
        make(tmp_path, amazon(reviews(3)))
    assert (tmp_path / "out" / "thesis.tex").exists()


def test_folders_are_walked_and_small_files_share_a_task(tmp_path):
    pairs = reviews(60)
    for i, pair in enumerate(pairs):
        place = tmp_path / "in" / f"part-{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.txt").write_text(review_text(*pair), encoding="utf-8")
    (tmp_path / "in" / ".hidden.txt").write_text("not this")
    (tmp_path / "in" / "readme.md").write_text("not this")
    notes = []
    index = prepare([tmp_path / "in"], tmp_path / "out", policy(), workers=1, notice=notes.append)
    assert sorted(documents(tmp_path / "out")) == expected(pairs)
    assert index["files"] == 60 and index["sources"][0]["name"] == "part-0/0.txt"
    assert len(notes) == 1 and "readme.md" in notes[0]


# split, order, duplicates


def test_splits_and_damage_are_named(tmp_path):
    output, _ = make(tmp_path, amazon(reviews(100)))
    with pytest.raises(TrainingError, match="train, valid, test"):
        open_shards(output, "dev")
    (output / "test" / "text.bin").write_bytes(b"short")
    with pytest.raises(TrainingError, match="damaged"):
        open_shards(output, "test")
    (output / "test" / "text.bin").unlink()
    with pytest.raises(TrainingError, match="prepare_reviews"):
        open_shards(output, "test")
    with pytest.raises(TrainingError, match="no folder of shards"):
        open_shards(tmp_path / "nothing")


# the command, and killing it


def command(output, *more):
    return [sys.executable, "-m", "training.prepare_reviews", "--output", str(output), "--shards", "400,1,1", *more]


def start(output, *more, **options):
    return subprocess.Popen(command(output, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_a_pipe_gives_the_same_as_a_file_and_the_command_says_what_it_made(tmp_path):
    data = amazon(reviews(400))
    output, _ = make(tmp_path, data, chosen=policy(shards=(400, 1, 1)))
    done = start(tmp_path / "piped", "--input", "-", "--workers", "1", stdin=subprocess.PIPE)
    out, err = done.communicate(gzip.compress(data), timeout=60)
    assert done.returncode == 0, err
    assert err == b""  # no bar where there is no terminal
    for split in SPLITS:
        index = open_shards(output, split).index
        assert open_shards(tmp_path / "piped", split).index == index
        assert index["sha256"]["shards"] in out.decode()
    failed = start(tmp_path / "none", "--input", str(tmp_path / "absent"))
    out, err = failed.communicate(timeout=60)
    assert failed.returncode == 1 and err.startswith(b"prepare_reviews: error: no such file") and b"Trace" not in err


def wait_for(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.002)


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_killed_in_the_middle_it_leaves_nothing_and_the_next_run_gives_the_same(tmp_path, moment):
    data = amazon(reviews(12_000))
    whole, _ = make(tmp_path, data, chosen=policy(shards=(400, 1, 1)))
    target = tmp_path / "again"
    if moment == "writing":
        make(tmp_path / "earlier", amazon(reviews(20)))[0].rename(target)
    before = fingerprint(target)
    process = start(target, "--input", "-", "--workers", "2", stdin=subprocess.PIPE)
    process.stdin.write(data[: len(data) * 3 // 4] if moment == "reading" else data)
    process.stdin.flush()
    if moment == "reading":
        wait_for(lambda: any(tmp_path.glob(".again.saving-*/partitions")))
    else:
        process.stdin.close()
        wait_for(lambda: any(tmp_path.glob(".again.saving-*/train/text.bin")))
    workers = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.close(), process.stderr.close(), process.stdin.close()
    assert process.wait() == -signal.SIGKILL
    assert fingerprint(target) == before and len(list(tmp_path.glob(".again.saving-*"))) == 1
    wait_for(lambda: not any(map(running, workers)))
    done = start(target, "--input", str(tmp_path / "reviews.jsonl"), "--workers", "2")
    _, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    assert fingerprint(target) == fingerprint(whole)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupted_it_says_so_and_leaves_nothing(tmp_path):
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a child of a background job would be deaf to it
    try:
        process = start(tmp_path / "out", "--input", "-", "--workers", "2", stdin=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, heard)
    wait_for(lambda: any(tmp_path.glob(".out.saving-*/partitions")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == b"prepare_reviews: interrupted, nothing was written\n"
    assert not list(tmp_path.iterdir())


def children(pid):
    found = []
    for path in os.listdir("/proc"):
        if path.isdecimal():
            try:
                with open(f"/proc/{path}/stat", encoding="utf-8") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(path))
            except OSError:
                continue
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="locks")
def test_a_folder_that_is_being_written_is_left_alone(tmp_path):
    with new_folder(tmp_path / "out") as first:
        (first / "index.json").write_text("{}")
        with new_folder(tmp_path / "out") as second:
            assert first.exists() and first != second
            (second / "index.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_the_amazon_reviews_are_split_as_they_say_twice_the_same(data_dir, tmp_path):
    from training.sources import amazon_text

    path = data_dir / "amazon" / "amazon_reviews.jsonl.xz"
    usual = policy(shards=prepare_reviews.SHARDS)
    indexes = [prepare([path], tmp_path / name, usual, workers=count) for name, count in (("a", 1), ("b", 2))]
    assert indexes[0] == indexes[1]
    assert open_shards(tmp_path / "a").index == open_shards(tmp_path / "b").index
    for split in ("valid", "test"):
        assert set(documents(tmp_path / "a", split)) == {document.text for document in amazon_text(data_dir, split)}
