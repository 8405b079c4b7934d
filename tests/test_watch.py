"""What a run shows and logs: the progress line, the tables, TensorBoard's events, a profile."""

import csv
import sys

import pytest
import tensorflow as tf
from tensorboard.compat.proto import event_pb2

from lbzoo.errors import TrainingError
from training import watch as watching
from training.watch import CsvLog, Watch

VALUES = {"characters": 100, "loss": 2.0, "bpc": 2.885, "rate": 0.00125, "loss_scale": 32768.0, "skipped": 3}


@pytest.fixture
def clock(monkeypatch):
    """A clock of our own: move its hand."""
    hand = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: hand[0])
    return hand


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def do_steps(watch, first, last, clock, values=VALUES):
    for step in range(first, last + 1):
        clock[0] += 1
        watch.step(step, {k: tf.constant(v) for k, v in values.items()})


def test_a_progress_line_says_how_far_how_well_and_how_long(tmp_path, clock, capsys):
    with Watch(tmp_path, 60).begin(0) as watch:
        clock[0] += 20  # the first step compiles
        do_steps(watch, 1, 20, clock)
    assert capsys.readouterr().err == (
        "step 20 of 60: bpc 2.885, rate 1.25e-03, 50.0 chars/s, loss scale 32768, skipped 3, 00:40 left\n"
    )


def test_progress_lines_are_not_more_frequent_than_a_reader_needs(tmp_path, clock, capsys):
    with Watch(tmp_path, 200, every=2).begin(0) as watch:
        do_steps(watch, 1, 200, clock)
    steps = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert steps == [2, 32, 62, 92, 122, 152, 182, 200]
    assert len(rows(tmp_path / "log.csv")) == 101


def test_a_terminal_gets_a_bar_in_place_of_lines(tmp_path, clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Watch(tmp_path, 60).begin(20) as watch:
        do_steps(watch, 21, 40, clock)
    bar = capsys.readouterr().err.split("\r")[-1]
    assert "40/60" in bar and "bpc 2.885, rate 1.25e-03, 100 chars/s, loss scale 32768, skipped 3" in bar
    assert "step 40 of 60" not in bar


def test_the_log_has_a_row_at_each_interval_and_at_the_last_step(tmp_path, clock):
    with Watch(tmp_path, 45).begin(0) as watch:
        do_steps(watch, 1, 45, clock)
    table = rows(tmp_path / "log.csv")
    assert table[0] == ["step", "chars_per_second", "loss", "bpc", "rate", "loss_scale", "skipped"]
    assert [row[:3] for row in table[1:]] == [["20", "100", "2"], ["40", "100", "2"], ["45", "100", "2"]]


def test_held_out_figures_are_printed_and_logged(tmp_path, capsys):
    with Watch(tmp_path, 60).begin(0) as watch:
        watch.figures(30, {"bpc": 1.75, "imdb": 0.875})
        watch.figures(40, {})
    assert capsys.readouterr().out == "step 30: bpc 1.7500, imdb 0.8750\n"
    assert rows(tmp_path / "heldout.csv") == [["step", "bpc", "imdb"], ["30", "1.75", "0.875"]]


def test_rows_beyond_the_restored_step_and_rows_cut_in_the_middle_are_dropped(tmp_path):
    path = tmp_path / "log.csv"
    log = CsvLog(path, 0)
    for step in (20, 40, 60):
        log.write(step, {"loss": "1.5", "norm": "2"})
    with open(path, "a") as file:
        file.write("80,1")
    log = CsvLog(path, 40)
    log.write(60, {"loss": "1.4", "norm": "2"})
    assert rows(path)[1:] == [["20", "1.5", "2"], ["40", "1.5", "2"], ["60", "1.4", "2"]]


def test_a_column_that_comes_later_is_added_to_the_table(tmp_path):
    CsvLog(tmp_path / "log.csv", 0).write(20, {"loss": "1.5"})
    log = CsvLog(tmp_path / "log.csv", 20)
    log.write(40, {"loss": "1.4", "loss_scale": "8"})
    log.write(60, {"loss": "1.3"})
    assert rows(tmp_path / "log.csv") == [
        ["step", "loss", "loss_scale"],
        ["20", "1.5", ""],
        ["40", "1.4", "8"],
        ["60", "1.3", ""],
    ]


def test_a_log_that_cannot_be_written_is_one_clear_error(tmp_path):
    log = CsvLog(tmp_path / "gone" / "log.csv", 0)
    with pytest.raises(TrainingError, match="could not write .*log.csv: .*No such file.*checkpoint is intact"):
        log.write(20, {"loss": "1.5"})


def test_of_several_workers_only_the_chief_shows_and_writes(tmp_path, clock, capsys):
    with Watch(tmp_path, 40, tensorboard=True, profile=True, writes=False).begin(0) as watch:
        do_steps(watch, 1, 40, clock)
        watch.figures(40, {"bpc": 1.75})
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr() == ("", "")


def test_tensorboard_gets_every_value_at_its_step(tmp_path, clock):
    with Watch(tmp_path, 40, tensorboard=True).begin(0) as watch:
        do_steps(watch, 1, 40, clock)
        watch.figures(40, {"bpc": 1.75})
    (path,) = (tmp_path / "events").iterdir()
    found = {}
    for record in tf.data.TFRecordDataset(str(path)):
        event = event_pb2.Event.FromString(record.numpy())
        for value in event.summary.value:
            found[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    assert found["bpc", 20] == found["bpc", 40] == pytest.approx(2.885)
    assert found["heldout/bpc", 40] == 1.75 and found["chars_per_second", 40] == 100
    assert {tag for tag, _ in found} == {*VALUES, "chars_per_second", "heldout/bpc"} - {"characters"}


def test_a_profile_of_a_few_steps_lies_in_the_run_folder(tmp_path, clock):
    with Watch(tmp_path, 100, profile=True).begin(50) as watch:
        do_steps(watch, 51, 54, clock)
        assert not (tmp_path / "profile").exists()
        do_steps(watch, 55, 61, clock)
        profiles = list((tmp_path / "profile").rglob("*.xplane.pb"))
        assert len(profiles) == 1 and profiles[0].stat().st_size > 0


def test_a_profile_that_a_short_run_cuts_off_is_written(tmp_path, clock):
    with Watch(tmp_path, 7, profile=True).begin(0) as watch:
        do_steps(watch, 1, 7, clock)
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
