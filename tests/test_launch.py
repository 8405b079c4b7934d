"""The launcher on plain commands: logs, what ends the others, restarts, exit statuses."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from training import launch


def python(folder, code):
    """A command that runs `code`, where `me` is the worker's number and `here` the folder."""
    prelude = f"import json, os, sys, time, signal; from pathlib import Path; here = Path({str(folder)!r}); "
    return [sys.executable, "-c", prelude + "me = json.loads(os.environ['TF_CONFIG'])['task']['index']\n" + code]


def gang(folder, code, workers=2, restarts=0, grace=5.0):
    return launch.launch(python(folder, code), workers, folder / "logs", restarts, grace)


def start(folder, code, root):
    """The launcher as a process of its own, once both workers have made their file ready-N."""
    command = [sys.executable, "-m", "training.launch", "--workers", "2", "--logs", str(folder), "--"]
    process = subprocess.Popen([*command, *python(folder, code)], cwd=root, stderr=subprocess.PIPE)
    wait_for(lambda: all((folder / f"ready-{i}").exists() for i in range(2)))
    return process


def test_each_worker_has_its_number_everybodys_address_and_a_log(tmp_path, capfd):
    code = "print(me, os.environ['TF_CONFIG'], os.environ['TF_NUM_INTRAOP_THREADS'])\nif me: print('unseen')"
    assert gang(tmp_path, code, workers=3) == 0
    logs = [(tmp_path / "logs" / f"worker-{i}.log").read_text() for i in range(3)]
    addresses = [set(re.findall(r"127\.0\.0\.1:\d+", log)) for log in logs]
    assert addresses[0] == addresses[1] == addresses[2] and len(addresses[0]) == 3
    assert [log[0] for log in logs] == ["0", "1", "2"] and "unseen" in logs[1]
    out, err = capfd.readouterr()
    assert out == logs[0] and "worker 2 is process" in err


def test_one_that_is_killed_takes_the_others_with_it_and_all_start_again(tmp_path, capfd):
    code = """
runs = here / f"runs-{me}"
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
if len(runs.read_text()) == 3: sys.exit(0)
if me == 1: os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""
    begun = time.monotonic()
    assert gang(tmp_path, code, restarts=2) == 0
    assert time.monotonic() - begun < 50
    assert (tmp_path / "runs-0").read_text() == (tmp_path / "runs-1").read_text() == "xxx"
    err = capfd.readouterr().err
    assert "worker 0 ended with SIGTERM (sent from here); worker 1 ended with SIGKILL: restart 1 of 2" in err


def test_the_limit_of_restarts_has_its_own_status(tmp_path, capfd):
    code = "print('attempt'); sys.exit(3 if me else 0)"
    assert gang(tmp_path, code, restarts=2) == launch.GIVE_UP_EXIT == 70
    assert (tmp_path / "logs" / "worker-1.log").read_text().split() == ["attempt"] * 3
    err = capfd.readouterr().err
    assert "worker 1 ended with exit status 3, its last words: attempt" in err and "giving up, 2 restarts" in err


@pytest.mark.parametrize("status", [1, 2])
def test_an_error_that_would_come_again_is_not_tried_again(tmp_path, capfd, status):
    # worker 0 only lost worker 1, and ends first
    code = f"if me: time.sleep(0.5); print('no such recipe')\nsys.exit({status} if me else 76)"
    assert gang(tmp_path, code, restarts=3) == status
    assert (tmp_path / "logs" / "worker-1.log").read_text() == "no such recipe\n"
    assert f"worker 1 ended with exit status {status}, its last words: no such recipe" in capfd.readouterr().err


def test_one_that_does_not_listen_to_term_is_killed(tmp_path, capfd):
    code = """
if me == 0:
    while not (here / "deaf").exists(): time.sleep(0.01)
    sys.exit(76)
signal.signal(signal.SIGTERM, signal.SIG_IGN); (here / "deaf").touch(); time.sleep(60)
"""
    assert gang(tmp_path, code, grace=0.3) == launch.GIVE_UP_EXIT
    assert "worker 0 lost another one; worker 1 ended with SIGKILL (sent from here)" in capfd.readouterr().err


def test_stopping_as_asked_is_passed_on(tmp_path):
    assert gang(tmp_path, "sys.exit(75)", restarts=3) == launch.RESUME_EXIT


SAVES = """
def save(*_): (here / f"saved-{me}").touch(); sys.exit(75)
if me or not %r: signal.signal(signal.SIGTERM, save)
(here / f"ready-{me}").touch(); time.sleep(60)
"""


@pytest.mark.parametrize("one_cannot_save, status", [(False, 75), (True, 143)])
def test_sigterm_to_the_launcher_reaches_every_worker(tmp_path, root, one_cannot_save, status):
    process = start(tmp_path, SAVES % one_cannot_save, root)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == status
    assert (tmp_path / "saved-1").exists() and (tmp_path / "saved-0").exists() != one_cannot_save


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel for it")
def test_workers_do_not_outlive_a_launcher_that_is_killed(tmp_path, root):
    process = start(tmp_path, SAVES % False, root)
    process.kill()
    process.communicate()
    wait_for(lambda: all((tmp_path / f"saved-{i}").exists() for i in range(2)))


def wait_for(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_gpus_and_cores_are_divided(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    found = [launch.environment(["a:1", "b:2"], i) for i in range(2)]
    assert [f["CUDA_VISIBLE_DEVICES"] for f in found] == ["0,1", "2,3"]
    assert {f["TF_NUM_INTRAOP_THREADS"] for f in found} == {"4"}
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert launch.environment(["a:1", "b:2"], 0)["TF_NUM_INTRAOP_THREADS"] == "3"


def test_free_ports_differ():
    assert len(set(launch.free_ports(20))) == 20


@pytest.mark.parametrize("arguments", [["--workers", "0", "--", "true"], ["--workers", "2"], ["--", "true"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        launch.main(arguments)
    assert left.value.code == 2 and "--workers" in capsys.readouterr().err


def test_a_command_that_does_not_exist(tmp_path, capsys):
    assert launch.main(["--workers", "2", "--logs", str(tmp_path), "--", "no-such-command"]) == 127
    assert "no such command" in capsys.readouterr().err


def test_logs_that_cannot_be_written_are_no_missing_command(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert launch.main(["--workers", "1", "--logs", str(tmp_path / "file" / "logs"), "--", "true"]) == 1
    assert "logs cannot be written" in capsys.readouterr().err
