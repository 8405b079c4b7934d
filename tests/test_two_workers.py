"""Two workers, real processes on this machine, against one: weights, checkpoints, signals, precisions."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.two_workers import HALF, held_out
from training import pretrain_mlstm, sample_reviews
from training.cluster import Cluster
from training.loop import RESUME_EXIT
from training.recipes import recipe
from training.trainer import train

pytestmark = pytest.mark.slow
TINY = ["-m", "training.pretrain_mlstm", "--recipe", "tiny"]


def launch(logs, *command, **options):
    launcher = [sys.executable, "-m", "training.launch", "--workers", "2", "--logs", str(logs)]
    launcher += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*launcher, "--", sys.executable, *command], text=True, **pipes)


def finished(process, seconds=300):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, out + err
    return out


def newest(run):
    return max((int(path.name[5:]) for path in run.glob("step-*")), default=0)


def saved(run):
    """Every number of the newest checkpoint by name."""
    reader = tf.train.load_checkpoint(str(run / f"step-{newest(run):08d}" / "state"))
    names = sorted(name for name in reader.get_variable_to_shape_map() if not name.startswith(("_", "save_counter")))
    return {name: reader.get_tensor(name) for name in names}


def assert_same_weights(run, other):
    ours, others = saved(run), saved(other)
    assert newest(run) == newest(other) and list(ours) == list(others)
    for name, values in ours.items():
        close = 1e-5 if name.startswith("state") else 1e-6  # cell states are sums over many bytes
        np.testing.assert_allclose(values, others[name], rtol=close, atol=close, err_msg=name)


def without_the_last(run, copy):
    """A copy of a run folder as it was one checkpoint earlier."""
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("logs", f"step-{newest(run):08d}"))
    return copy


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return sample_reviews.write(tmp_path_factory.mktemp("two") / "shards")


@pytest.fixture(scope="module")
def one(tmp_path_factory, shards):
    """(run folder, trainer, end) of one worker."""
    run = tmp_path_factory.mktemp("two") / "one"
    return run, *train(recipe("tiny"), shards, run, None, None)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(run folder, what the launcher printed) of two workers."""
    run = tmp_path_factory.mktemp("two") / "two"
    return run, finished(launch(run / "logs", *TINY, "--strategy", "multiworker", "--run", str(run)))


def test_two_workers_end_with_the_weights_of_one(one, two):
    assert_same_weights(two[0], one[0])


def test_the_last_line_says_loss_and_checksum(one, two):
    step, loss, checksum = re.fullmatch(r"step (\d+) loss (\S+) checksum (\w{8})", two[1].splitlines()[-1]).groups()
    assert int(step) == 60 and len(checksum) == 8
    np.testing.assert_allclose(float(loss), one[2].loss, rtol=1e-6)


def test_one_worker_goes_on_from_what_two_wrote(one, two, tmp_path, shards):
    run = without_the_last(two[0], tmp_path / "run")
    assert newest(run) == 50
    train(recipe("tiny"), shards, run, None, None)
    assert_same_weights(run, one[0])


@pytest.fixture(scope="module")
def together(tmp_path_factory, one, shards):
    """What `two_workers.py` found, and its folder."""
    folder = tmp_path_factory.mktemp("two") / "together"
    shutil.copytree(shards, folder / "shards")
    without_the_last(one[0], folder / "resumed")
    finished(launch(folder / "logs", "-m", "tests.two_workers", str(folder)))
    return json.loads((folder / "found.json").read_text()), folder


def test_two_workers_go_on_from_what_one_wrote(one, together):
    assert_same_weights(together[1] / "resumed", one[0])


def test_held_out_figures_of_two_workers_are_those_of_one(one, together):
    np.testing.assert_allclose(together[0]["held out"], held_out(one[1], Cluster()), rtol=1e-5)


def test_a_gradient_that_is_not_finite_on_the_second_worker_changes_nothing_on_either(together):
    bad = together[0]["bad"]
    assert bad["changed"] == [0, 0] and bad["differ"] == 0
    assert bad["counts"] == [1, 61]  # skipped, done
    assert "at step 61" in bad["error"] and "worker 1 (replica 1 of 2)" in bad["error"]


def test_workers_that_disagree_are_named(together):
    assert "the workers differ in the step. Received: worker 0: 0, worker 1: 10" in together[0]["disagreement"]


@pytest.mark.parametrize("precision", HALF)
def test_half_precision_ends_within_noise_of_float32(one, together, shards, tmp_path, precision):
    config = dataclasses.replace(recipe("tiny"), precision=precision)
    _, alone = train(config, shards, tmp_path / "run", None, None)
    for loss in (alone.loss, together[0][precision]):
        np.testing.assert_allclose(loss, one[2].loss, rtol=0.02)
    np.testing.assert_allclose(together[0]["float32"], one[2].loss, rtol=1e-6)


def processes(launcher):
    """Process numbers of the workers, as the launcher says them."""
    for line in launcher.stderr:
        found = re.findall(r"is process (\d+)", line)
        if found:
            return [int(pid) for pid in found]
    raise AssertionError("the launcher ended")


def wait_for(condition, seconds=240):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
def test_a_frozen_worker_ends_the_other_all_start_again_and_sigterm_to_one_stops_all(tmp_path, shards, capfd):
    run = tmp_path / "run"
    settings = ["--set", "steps=100000", "--set", "evaluate_every=100000", "--run", str(run), "--shards", str(shards)]
    logs = tmp_path / "logs"
    launcher = launch(logs, *TINY, *settings, "--strategy", "multiworker", restarts=1, grace=1)
    workers = processes(launcher)
    wait_for(lambda: newest(run) >= 20)
    os.kill(workers[1], signal.SIGSTOP)
    frozen = time.monotonic()
    wait_for(lambda: not runs(workers[0]), 60)
    assert time.monotonic() - frozen < 30
    workers, before = processes(launcher), newest(run)
    assert re.search(r"worker 0 lost worker 1 at 127\.0\.0\.1:\d+: .*heartbeat", (logs / "worker-0.log").read_text())
    wait_for(lambda: newest(run) > before)
    os.kill(workers[1], signal.SIGTERM)
    launcher.communicate(timeout=120)
    assert launcher.returncode == RESUME_EXIT
    step = newest(run)
    for log in logs.iterdir():
        assert f"stopped after step {step} of 100000" in log.read_text()

    assert pretrain_mlstm.main([*TINY[2:], *settings, "--minutes", "1e-9"]) == RESUME_EXIT
    assert newest(run) == step + 1
