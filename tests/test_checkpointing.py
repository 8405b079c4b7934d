"""Training checkpoints: complete or not there, the newest and the best kept, the last good one never lost."""

import json
import os
import shutil
import sys

import pytest
import tensorflow as tf

from lbzoo._keras import adam
from lbzoo.errors import TrainingError
from training.checkpointing import Checkpoints, read_commit


def variables_and_checkpoints(folder, **options):
    variable, step = tf.Variable([1.0, 2.0]), tf.Variable(0)
    return variable, Checkpoints(folder, {"variable": variable, "step": step}, **options)


def saved(folder, *steps, **options):
    """The variable is [step, 0] at each step."""
    variable, checkpoints = variables_and_checkpoints(folder, **options)
    for step in steps:
        variable.assign([float(step), 0.0])
        checkpoints.save(step, {"loss": 0.5})
    return variable, checkpoints


def steps_in(folder):
    return [int(path.name[5:]) for path in sorted(folder.iterdir()) if path.name.startswith("step-")]


def damage(folder, step):
    data = next((folder / f"step-{step:08d}").glob("*.data*"))
    data.write_bytes(data.read_bytes()[:-1] + b"?")


def test_the_newest_complete_checkpoint_wins_and_a_damaged_one_is_skipped(tmp_path, capsys):
    assert variables_and_checkpoints(tmp_path)[1].restore() is None
    variable, checkpoints = saved(tmp_path, 1, 2, 3)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step-00000002", "step-00000003"]
    damage(tmp_path, 3)
    assert checkpoints.restore()["step"] == 2 and variable.numpy()[0] == 2.0
    warned = capsys.readouterr().err
    assert warned.count("\n") == 1 and "step-00000003" in warned and "changed since it was written" in warned


@pytest.mark.parametrize("missing", ["COMMIT.json", "state.index"])
def test_an_incomplete_checkpoint_does_not_count(tmp_path, missing):
    _, checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / missing).unlink()
    assert checkpoints.restore()["step"] == 1


@pytest.mark.parametrize("text", ["", "[]", '{"step": 2}', '{"step": 2, "files": 3}', "\x00\x00"])
def test_a_commit_file_that_says_nothing_does_not_count(tmp_path, text):
    _, checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / "COMMIT.json").write_text(text)
    assert checkpoints.restore()["step"] == 1


def test_where_every_checkpoint_is_damaged_nothing_starts_from_nothing(tmp_path):
    _, checkpoints = saved(tmp_path, 1, 2)
    damage(tmp_path, 1)
    damage(tmp_path, 2)
    with pytest.raises(TrainingError, match="none of the 2 checkpoints"):
        checkpoints.restore()
    assert steps_in(tmp_path) == [1, 2]


def test_leftovers_of_a_killed_save_and_of_a_killed_delete_are_cleared(tmp_path):
    _, checkpoints = saved(tmp_path, 1)
    for name in (".step-00000002.saving-77", ".step-00000000.deleting"):
        shutil.copytree(tmp_path / "step-00000001", tmp_path / name)
    assert checkpoints.restore()["step"] == 1
    assert not list(tmp_path.glob(".step-*"))


def test_a_damaged_checkpoint_does_not_push_out_a_sound_one(tmp_path):
    saved(tmp_path, 1, 2, 3)
    damage(tmp_path, 3)
    variable, checkpoints = variables_and_checkpoints(tmp_path)
    assert checkpoints.restore()["step"] == 2
    checkpoints.save(4, {"loss": 0.5})
    assert steps_in(tmp_path) == [2, 4]


def test_the_best_by_held_out_figure_is_kept_and_can_be_restored(tmp_path):
    variable, checkpoints = variables_and_checkpoints(tmp_path)
    figures = {1: {"bpc": 2.5}, 2: {"bpc": 1.9}, 3: {}, 4: {"bpc": float("nan")}, 5: {"bpc": 2.0}, 6: {}}
    for step, figure in figures.items():
        variable.assign([float(step), 0.0])
        checkpoints.save(step, {"loss": 0.5, "figures": figure})
    assert steps_in(tmp_path) == [2, 5, 6]
    assert checkpoints.restore()["step"] == 6
    assert checkpoints.restore(best=True)["figures"] == {"bpc": 1.9} and variable.numpy()[0] == 2.0
    checkpoints.save(7, {"loss": 0.5, "figures": {"bpc": 1.8}})
    assert steps_in(tmp_path) == [6, 7]


def test_one_checkpoint_is_not_enough_to_keep(tmp_path):
    with pytest.raises(TrainingError, match="at least 2.*keep=1"):
        variables_and_checkpoints(tmp_path, keep=1)


def test_steps_beyond_eight_digits_are_the_newest(tmp_path):
    _, checkpoints = saved(tmp_path, 99_999_999, 100_000_000)
    assert checkpoints.restore()["step"] == 100_000_000


def test_a_process_that_does_not_write_changes_nothing(tmp_path):
    saved(tmp_path, 1, 2)
    (tmp_path / ".step-00000003.saving-77").mkdir()
    before = sorted(tmp_path.rglob("*"))
    variable, checkpoints = variables_and_checkpoints(tmp_path, writes=False)
    assert checkpoints.restore()["step"] == 2 and variable.numpy()[0] == 2.0
    checkpoints.save(3, {"loss": 0.5})
    assert sorted(tmp_path.rglob("*")) == before


def test_slots_of_the_optimizer_come_back_and_count_as_room_needed(tmp_path, monkeypatch):
    variable, optimizer = tf.Variable(tf.ones([1 << 18])), adam(0.1)  # 1 MiB, and two slots of as much
    optimizer.apply_gradients([(2 * tf.ones_like(variable), variable)])
    checkpoints = Checkpoints(tmp_path, {"model": {"w": variable}, "optimizer": optimizer})
    checkpoints.save(1, {})
    slot = optimizer.get_slot(variable, "m").numpy().copy()
    optimizer.apply_gradients([(-tf.ones_like(variable), variable)])
    checkpoints.restore()
    assert (optimizer.get_slot(variable, "m").numpy() == slot).all() and int(optimizer.iterations) == 1

    usage = shutil.disk_usage(tmp_path)
    for free, enough in ((3 << 20, False), (5 << 20, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        if enough:
            checkpoints.require_room()
            checkpoints.save(3, {})
        else:
            with pytest.raises(TrainingError, match=f"{free:,} are free.*Make room"):
                checkpoints.require_room()
            with pytest.raises(TrainingError, match=f"step 2.*{free:,} are free.*intact"):
                checkpoints.save(2, {})
            assert sorted(os.listdir(tmp_path)) == ["step-00000001"]


def test_a_file_that_cannot_be_written_leaves_the_last_good_checkpoint(tmp_path):
    resource = pytest.importorskip("resource")
    variable = tf.Variable(tf.zeros([1 << 18]))
    checkpoints = Checkpoints(tmp_path, {"variable": variable})
    checkpoints.save(1, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))  # the file system refuses the rest, as when it is full
    try:
        with pytest.raises(TrainingError, match="could not save step 2.*last good checkpoint is intact") as raised:
            checkpoints.save(2, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path) == ["step-00000001"]
    assert checkpoints.restore()["step"] == 1


def test_a_disk_that_fails_at_the_end_of_a_save_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    _, checkpoints = saved(tmp_path, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lbzoo.files._sync", full)
    with pytest.raises(TrainingError, match="No space left.*last good checkpoint is intact"):
        checkpoints.save(2, {})
    monkeypatch.undo()
    assert checkpoints.restore()["step"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_everything_is_on_disk_before_the_folder_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (events.append(("rename", b)), rename(a, b)))
    _, checkpoints = variables_and_checkpoints(tmp_path)
    folder = checkpoints.save(1, {})
    before = [os.path.basename(path) for path in events[: events.index(("rename", folder))]]
    assert {path.name for path in folder.iterdir()} <= set(before)
    assert str(tmp_path) in events[events.index(("rename", folder)) :]  # the new name is forced to disk as well


def test_the_commit_file_names_every_other_file_by_its_hash(tmp_path):
    _, checkpoints = variables_and_checkpoints(tmp_path)
    folder = checkpoints.save(3, {"loss": 0.25, "figures": {"bpc": 2.0}, "config": {"seed": 1}})
    commit = read_commit(folder)
    assert set(commit["files"]) == {path.name for path in folder.iterdir()} - {"COMMIT.json"}
    assert json.dumps(commit["config"]) == '{"seed": 1}' and commit["loss"] == 0.25
