"""Writing checkpoint folders: replaced whole or not at all, whatever fails, whoever else writes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from lbzoo import checkpoint, files, folder
from lbzoo.errors import CheckpointError
from lbzoo.models.config import MLSTMConfig
from tests.test_checkpoint import CONFIG, beside, flip, tensors


@pytest.fixture
def small(tmp_path):
    """A checkpoint folder written without TensorFlow."""
    return checkpoint.write(tmp_path / "small", CONFIG, "openai", tensors(), card={"licence": "none"})


def test_saving_over_a_checkpoint_replaces_all_of_it(small, tmp_path):
    checkpoint.write(small, CONFIG, "reviews", tensors(seed=1), card={})
    assert checkpoint.read_folder(small).text == "reviews"
    np.testing.assert_array_equal(load_file(small / "model.safetensors")["wh"], tensors(seed=1)["wh"])
    assert beside(small) == ["small"]


def test_saving_in_two_steps_where_the_system_cannot_swap(small, monkeypatch):
    monkeypatch.setattr(files, "_swap", lambda *_: False)
    checkpoint.write(small, CONFIG, "reviews", tensors(seed=1))
    assert checkpoint.read_folder(small).text == "reviews" and beside(small) == ["small"]


def test_a_failed_second_step_brings_the_old_folder_back(small, monkeypatch):
    rename = os.rename

    def refuse(source, target):
        if ".saving-" in str(source):
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(files, "_swap", lambda *_: False)
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(CheckpointError, match="could not be written; what was there is unchanged"):
        checkpoint.write(small, CONFIG, "reviews", tensors(seed=1))
    assert checkpoint.verify(small).text == "openai" and beside(small) == ["small"]


def test_a_copy_left_by_a_kill_between_the_two_steps_is_pointed_out(small):
    left = small.parent / ".small.old-0123456789ab"
    left.mkdir()
    small.rename(left / "folder")
    with pytest.raises(CheckpointError, match=r"the copy before it is .*\.small\.old-"):
        checkpoint.load(small)
    checkpoint.verify(left / "folder")


@pytest.mark.parametrize("where", ["write_tensors", "card", "probe", "read back"])
def test_a_save_that_fails_keeps_what_was_there(small, where, monkeypatch):
    before = {path.name: path.read_bytes() for path in small.iterdir()}

    def fail(*_):
        raise OSError(28, "No space left on device")

    class Probe:
        save = fail

    card = {"a": object()} if where == "card" else {}
    if where == "write_tensors":
        monkeypatch.setattr("lbzoo.tensors.write_tensors", fail)
    if where == "read back":
        monkeypatch.setattr(checkpoint, "_read_back", fail)
    with pytest.raises(CheckpointError, match="Received"):
        checkpoint.write(small, CONFIG, "reviews", tensors(), card=card, probe=Probe() if where == "probe" else None)
    assert {path.name: path.read_bytes() for path in small.iterdir()} == before
    assert beside(small) == ["small"]


def test_a_file_that_reads_back_differently_is_an_error(tmp_path, monkeypatch):
    import safetensors.numpy

    write = safetensors.numpy.save
    monkeypatch.setattr(safetensors.numpy, "save", lambda *given: write(*given)[:-1] + b"\x55")  # a worn disk
    with pytest.raises(CheckpointError, match="read back differs"):
        checkpoint.write(tmp_path / "m", CONFIG, "openai", tensors())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stranger", ["notes.txt", "model.pt", ".git/HEAD", "vocab/words.txt"])
def test_a_folder_with_other_files_is_refused(small, stranger):
    path = small / stranger
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(CheckpointError, match=f"other files.*{stranger.split('/')[0]}"):
        checkpoint.write(small, CONFIG, "reviews", tensors())
    assert path.read_text() == "mine" and checkpoint.verify(small).text == "openai"


def test_another_librarys_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_bytes(b"theirs")
    with pytest.raises(CheckpointError, match="another library's model"):
        checkpoint.write(tmp_path, CONFIG, "openai", tensors())
    assert (tmp_path / "model.safetensors").read_bytes() == b"theirs"


def test_a_readme_is_carried_over(small):
    (small / "README.md").write_text("words")
    checkpoint.write(small, CONFIG, "reviews", tensors())
    assert (small / "README.md").read_text() == "words"
    assert "README.md" not in json.loads((small / "config.json").read_text())["files"]
    checkpoint.load(small)


def test_other_places_to_save(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        checkpoint.write(tmp_path / "file", CONFIG, "openai", tensors())
    with pytest.raises(CheckpointError, match="could not be written"):
        checkpoint.write(tmp_path / "file" / "below", CONFIG, "openai", tensors())
    (tmp_path / "empty").mkdir()
    checkpoint.verify(checkpoint.write(tmp_path / "empty", CONFIG, "openai", tensors()))
    checkpoint.verify(checkpoint.write(tmp_path / "new" / "deep \u00e9 [x]", CONFIG, "openai", tensors()))
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    checkpoint.write(tmp_path / "link", CONFIG, "reviews", tensors())
    assert (tmp_path / "link").is_symlink() and checkpoint.verify(tmp_path / "empty").text == "reviews"
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="current directory"):
        checkpoint.write(".", CONFIG, "openai", tensors())
    checkpoint.verify(checkpoint.write("relative", CONFIG, "openai", tensors()))


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    if os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("this user may write anywhere (root)")
    with pytest.raises(CheckpointError, match="Permission denied"):
        checkpoint.write(tmp_path / "closed" / "m", CONFIG, "openai", tensors())


def test_a_read_only_file_system(small, monkeypatch):
    def refuse(self, *_, **__):
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(CheckpointError, match=f"{re.escape(str(small))}.*Read-only file system"):
        checkpoint.write(small, CONFIG, "reviews", tensors())
    assert checkpoint.load(small).text == "openai"  # reading writes nothing


# probes


def test_a_probe_goes_with_the_weights(tiny_model, tmp_path):
    from lbzoo.transfer.probe import Probe

    probe = Probe(coef=np.ones((1, 8), "f4"), intercept=np.zeros(1, "f4"), classes=[0, 1])
    place = checkpoint.save(tiny_model, tmp_path / "m", probe=probe)
    back = checkpoint.load_probe(place)
    np.testing.assert_array_equal(back.coef, probe.coef)
    assert set(folder.manifest_files(place)) >= {"probe.json", "probe.safetensors"}
    flip(place / "probe.safetensors")
    with pytest.raises(CheckpointError, match=r"probe\.safetensors has changed"):
        checkpoint.load_probe(place)
    with pytest.raises(CheckpointError, match=r"probe\.safetensors has changed"):
        checkpoint.load(place)
    checkpoint.save(tiny_model, place)
    assert checkpoint.load_probe(place) is None


def test_a_probe_of_another_width_is_refused_at_the_save(tiny_model, tmp_path):
    from lbzoo.transfer.probe import Probe

    probe = Probe(coef=np.ones((1, 9), "f4"), intercept=np.zeros(1, "f4"), classes=[0, 1])
    with pytest.raises(CheckpointError, match="must weigh 8 units. Received: 9"):
        checkpoint.save(tiny_model, tmp_path / "m", probe=probe)
    assert list(tmp_path.iterdir()) == []


def test_a_probe_that_config_json_does_not_list_is_not_read(small):
    (small / "probe.json").write_text("{}")
    assert checkpoint.load_probe(small) is None


# processes

WRITER = textwrap.dedent(
    """
    import resource, sys
    import numpy as np
    from lbzoo import checkpoint
    from lbzoo.models.config import MLSTMConfig

    place, seed, times, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    config = MLSTMConfig(units=64)
    tensors = {name: np.full(shape, seed, "f4") for name, shape in config.shapes().items()}
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    print("ready", flush=True)
    for _ in range(times):
        checkpoint.write(place, config, "openai", tensors, card={"seed": seed})
    """
)


def writer(place, seed, times, limit=0, **options):
    command = [sys.executable, "-c", WRITER, str(place), str(seed), str(times), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def whole(place):
    """The seed of a folder; its files must belong together."""
    card = checkpoint.load_card(place)
    assert (load_file(place / "model.safetensors")["wh"] == card["seed"]).all()
    return card["seed"]


@pytest.mark.slow
def test_two_processes_saving_to_one_folder_while_a_third_reads(tmp_path, root):
    place = tmp_path / "shared"
    checkpoint.write(place, MLSTMConfig(units=64), "openai", tensors(MLSTMConfig(units=64)), card={"seed": 0})
    running = [writer(place, seed, 30, cwd=root) for seed in (1, 2)]
    reads = 0
    while any(process.poll() is None for process in running):
        folder.while_still(place, lambda: checkpoint.verify(place))
        reads += 1
    for process in running:
        assert process.wait() == 0, process.stderr.read()
    assert whole(place) in (1, 2) and reads > 3 and beside(place) == ["shared"]


def test_a_folder_that_is_replaced_all_the_time_is_an_error_and_never_a_mixture(tmp_path, monkeypatch):
    def read():
        fresh = tmp_path / f"fresh-{len(list(tmp_path.iterdir()))}"
        fresh.mkdir()
        (tmp_path / "place").rename(tmp_path / f"{fresh.name}-old")
        fresh.rename(tmp_path / "place")
        return "mixed"

    (tmp_path / "place").mkdir()
    monkeypatch.setattr(folder, "_PATIENCE", 0.05)
    with pytest.raises(CheckpointError, match="place was replaced again and again"):
        folder.while_still(tmp_path / "place", read)


@pytest.mark.slow
def test_a_killed_save_leaves_the_old_folder_whole(tmp_path, root):
    place = tmp_path / "killed"
    for seed, wait in enumerate((0.8, 0.05, 0.11, 0.17, 0.23, 0.29)):
        process = writer(place, seed, 10_000, cwd=root)
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert whole(place) <= seed
    for left in place.parent.glob(".killed.*"):
        os.utime(left, (0, 0))
        for path in left.iterdir():
            os.utime(path, (0, 0))
    checkpoint.write(place, CONFIG, "openai", tensors())
    assert beside(place) == ["killed"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_keeps_what_was_there(tmp_path, root):
    config = MLSTMConfig(units=64)
    place = checkpoint.write(tmp_path / "full", config, "openai", tensors(config), card={"seed": 0})
    process = writer(place, 1, 1, limit=50_000, cwd=root)
    _, errors = process.communicate()
    assert process.returncode == 1 and "CheckpointError" in errors and "File too large" in errors
    assert str(place.parent) in errors and checkpoint.load_card(place)["seed"] == 0 and beside(place) == ["full"]


def test_other_users_may_read_what_was_saved(tiny_model, tmp_path):
    before = os.umask(0o022)
    try:
        folder = checkpoint.save(tiny_model, tmp_path / "saved")
    finally:
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir() if path.is_file()} == {
        path.name: "0o644" for path in folder.iterdir()
    }
    assert folder.stat().st_mode & 0o777 == 0o755
