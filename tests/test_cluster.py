"""Which workers there are, as the environment says. `test_two_workers.py` has them work together."""

import json
import os
import signal

import numpy as np
import pytest

from lbzoo.errors import ConfigError, TrainingError
from training import cluster
from training.cluster import Cluster, Roster, connect, roster


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """No cluster in the environment."""
    for name in list(os.environ):
        if name == "TF_CONFIG" or name.startswith("SLURM_"):
            monkeypatch.delenv(name)


def tf_config(workers=("a:1", "b:2"), kind="worker", index=0, **jobs):
    return json.dumps({"cluster": {"worker": list(workers), **jobs}, "task": {"type": kind, "index": index}})


def test_tf_config_gives_the_workers_and_this_ones_number(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(index=1))
    assert roster() == Roster(("a:1", "b:2"), 1, "TF_CONFIG")


@pytest.mark.parametrize("kind, index, expected", [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_a_chief_is_the_first_worker(monkeypatch, kind, index, expected):
    monkeypatch.setenv("TF_CONFIG", tf_config(kind=kind, index=index, chief=["c:3"]))
    found = roster()
    assert found == Roster(("c:3", "a:1", "b:2"), expected, "TF_CONFIG")
    monkeypatch.setenv("TF_CONFIG", found.tf_config())
    assert roster() == found


@pytest.mark.parametrize(
    "text, words",
    [
        ("{", "not what TensorFlow expects.*Received: '{'"),
        ("[]", "not what TensorFlow expects"),
        ('{"cluster": {"worker": ["a:1"]}}', "KeyError: 'task'"),
        ('{"cluster": {"worker": 3}, "task": {"type": "worker", "index": 0}}', "not what TensorFlow expects"),
        ('{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}', "is a list of addresses"),
        ('{"cluster": {}, "task": {"type": "worker", "index": 0}}', "at most one chief.*Received: jobs none"),
        (tf_config(ps=["p:4"]), r"at most one chief.*worker \(2\), ps \(1\)"),
        (tf_config(chief=["c:3", "d:4"]), r"at most one chief.*chief \(2\)"),
        (tf_config(("a:1", "a:1")), "same host and port. Received: a:1"),
        (tf_config(index=2), "worker 2, which is not in its cluster. Received: worker 0 to 1"),
        (tf_config(index=-1), "worker -1, which is not"),
        (tf_config(index="first"), "not what TensorFlow expects.*'first'"),
        (tf_config(kind="evaluator"), "evaluator 0, which is not"),
        (tf_config(("a:1", "b")), "host:port. Received: 'b' for worker 1"),
        (tf_config(("a:1", ":2")), "host:port"),
        (tf_config(("a:1", "b:0")), "host:port"),
        (tf_config(("a:1", "b:70000")), "host:port"),
        (tf_config(("a:1", 5)), "host:port. Received: 5"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(monkeypatch, text, words):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ConfigError, match=words):
        roster()


def test_without_a_cluster_it_says_how_to_get_one():
    with pytest.raises(ConfigError, match="neither TF_CONFIG nor a Slurm step.*training.launch"):
        connect("multiworker")


def slurm(monkeypatch, nodes, tasks, node, local, **more):
    step = {"SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_STEP_NUM_TASKS": "4"}
    step.update(SLURM_PROCID="0", SLURMD_NODENAME=node, SLURM_LOCALID=str(local), **more)
    for name, value in step.items():
        monkeypatch.setenv(name, value)


def test_slurm_gives_a_port_to_each_task_of_a_machine(monkeypatch):
    slurm(monkeypatch, "gpu[03-04]", "2(x2)", "gpu04", 1)
    assert roster() == Roster(("gpu03:8888", "gpu03:8889", "gpu04:8888", "gpu04:8889"), 3, "Slurm")


def test_slurm_tasks_find_themselves_whatever_the_order_of_the_machines(monkeypatch):
    found = []
    for node in ("n9", "n10"):  # as text, n10 comes first
        for local in range(2):
            slurm(monkeypatch, "n[9-10]", "2(x2)", node, local)
            found.append(roster())
    assert len({f.addresses for f in found}) == 1 and sorted(f.index for f in found) == [0, 1, 2, 3]
    assert [f.addresses[f.index] for f in found] == ["n9:8888", "n9:8889", "n10:8888", "n10:8889"]


def test_slurm_variables_that_do_not_fit_are_refused(monkeypatch):
    slurm(monkeypatch, "n[1-2]", "2(x2)", "n3", 0)
    with pytest.raises(ConfigError, match="n3:8888.*SLURM_STEP_NODELIST.*srun"):
        roster()
    monkeypatch.delenv("SLURM_STEP_NODELIST")
    with pytest.raises(ConfigError, match="SLURM_STEP_NODELIST not found"):
        roster()


def test_a_process_alone_is_a_cluster_of_one():
    alone = Cluster()
    assert (alone.index, alone.count, alone.chief) == (0, 1, True)
    np.testing.assert_array_equal(alone.gather([[1.5, 2.0]]), [[[1.5, 2.0]]])
    assert alone.any(True) and not alone.any(False)
    alone.agreed(3, "anything")
    alone.barrier()


@pytest.mark.parametrize("kind", ["none", "mirrored"])
def test_one_of_several_workers_does_not_do_the_whole_run_by_itself(monkeypatch, kind):
    monkeypatch.setenv("TF_CONFIG", tf_config())
    with pytest.raises(ConfigError, match=f"one of 2 workers.*--strategy {kind}. Say --strategy multiworker"):
        connect(kind)
    monkeypatch.setenv("TF_CONFIG", tf_config(("a:1",)))
    assert connect(kind).count == 1


def test_an_unknown_strategy_lists_the_known():
    with pytest.raises(ConfigError, match="'horovod'. Known: none, mirrored, multiworker, tpu"):
        connect("horovod")


def test_a_tpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(TrainingError, match="no TPU answers.*TPU_NAME=local"):
        connect("tpu")


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="has no SIGALRM")
def test_what_nobody_can_interrupt_has_a_limit():
    before = signal.getsignal(signal.SIGALRM)
    with cluster._ended_after(60):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0 and signal.getsignal(signal.SIGALRM) == before
