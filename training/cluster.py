"""Which workers a run has, and how they work together: none, mirrored, multiworker (TF_CONFIG or Slurm) or tpu.

Every worker runs the same program. The workers are read from the environment, checked, and waited for (see
`rendezvous`), before TensorFlow starts a cluster of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from lbzoo.errors import ConfigError, TrainingError
from training import rendezvous

STRATEGIES = ("none", "mirrored", "multiworker", "tpu")
LOST_EXIT = 76  # another worker was lost; started again together, all go on from the last checkpoint
STALL_SECONDS = 1200  # a collective that takes longer has a worker that is alive and does nothing
PORT_BASE = 8888  # under Slurm: of the first worker of each machine
# What a collective raises where a peer died (within a second, or ten if it had just answered) or froze (within ten, by
# the heartbeat of TensorFlow's coordination service).
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class WorkerLostError(TrainingError):
    """Another worker died, froze or left, so that this one cannot go on."""


@dataclasses.dataclass(frozen=True)
class Roster:
    """The addresses of all workers, in the order of their numbers, and which of them this process is.

    Raises:
        ConfigError: an address that is not host:port, one that occurs twice, or an index without address.
    """

    addresses: tuple[str, ...]
    index: int
    source: str

    def __post_init__(self) -> None:
        for number, address in enumerate(self.addresses):
            host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
            if not (host and port.isdigit() and 0 < int(port) < 65536):
                raise ConfigError(
                    f"{self.source} gives each worker as host:port. Received: {address!r} for worker {number}."
                )
        twice = sorted({address for address in self.addresses if self.addresses.count(address) > 1})
        if twice:
            raise ConfigError(
                f"{self.source} gives two workers the same host and port. Received: {', '.join(twice)} more than once. "
                f"Workers on one machine need a port each."
            )
        if not 0 <= self.index < len(self.addresses):
            raise ConfigError(
                f"{self.source} says that this is worker {self.index}. Received: {len(self.addresses)} workers, "
                f"numbered 0 to {len(self.addresses) - 1}. Give every worker the same list and its own number."
            )

    def tf_config(self) -> str:
        """As TensorFlow reads it from the environment."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": list(self.addresses)}, "task": task})


def roster() -> Roster:
    """The workers that the environment describes: TF_CONFIG or, without it, Slurm.

    Raises:
        ConfigError: neither is there, or what is there makes no cluster of workers.
    """
    if os.environ.get("TF_CONFIG"):
        return _from_tf_config(os.environ["TF_CONFIG"])
    if "SLURM_STEP_NUM_TASKS" in os.environ:
        return _from_slurm()
    raise ConfigError(
        "--strategy multiworker needs to know its workers. Received: neither TF_CONFIG nor a Slurm step (srun) in the "
        "environment. On one machine: python -m training.launch --workers 2 -- COMMAND; on several: examples/cluster/."
    )


def _from_tf_config(text: str) -> Roster:
    """A chief, where there is one, is worker 0."""
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        if not all(isinstance(cluster[job], list) for job in cluster):
            raise TypeError("each job of the cluster is a list of addresses")
        jobs = dict(cluster)
        kind, index = task["type"], int(task["index"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"TF_CONFIG is not what TensorFlow expects ({type(error).__name__}: {error}). Received: {text!r}. It looks "
            f'so: {{"cluster": {{"worker": ["host0:2222", "host1:2222"]}}, "task": {{"type": "worker", "index": 0}}}}.'
        ) from error
    others = sorted(job for job in jobs if job not in ("chief", "worker") and jobs[job])
    chiefs, workers = jobs.get("chief", []), jobs.get("worker", [])
    if others or len(chiefs) > 1 or not chiefs + workers:
        raise ConfigError(
            f"TF_CONFIG describes workers and at most one chief; all train, the first one also writes. Received: jobs "
            f"{', '.join(f'{job} ({len(jobs[job])})' for job in jobs) or 'none'}."
        )
    if not 0 <= index < len(jobs.get(kind, [])):
        raise ConfigError(
            f"TF_CONFIG says that this is {kind} {index}, which is not in its cluster. Received: "
            f"{', '.join(f'{job} 0 to {len(jobs[job]) - 1}' for job in jobs if jobs[job])}."
        )
    return Roster(tuple(chiefs + workers), index + (len(chiefs) if kind == "worker" else 0), "TF_CONFIG")


def _from_slurm() -> Roster:
    """Addresses by TensorFlow's resolver, one port a task; devices are left to Slurm (`srun --gpus-per-task`).

    The resolver sorts hosts as text, Slurm numbers them as they are listed (n9 before n10): this process finds itself
    by its machine and its number there, not by its rank.
    """
    try:
        tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
        # the numbers of GPUs play no part then, but without them it asks nvidia-smi, which not every machine has
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            port_base=PORT_BASE, gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False
        )
        addresses = resolver.cluster_spec().job_tasks("worker")
        own = f"{os.environ['SLURMD_NODENAME']}:{PORT_BASE + int(os.environ['SLURM_LOCALID'])}"
        return Roster(tuple(addresses), addresses.index(own), "Slurm")
    except (KeyError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"Slurm's variables describe no step of workers ({type(error).__name__}: {error}). Received: "
            f"{ {name: os.environ[name] for name in sorted(os.environ) if name.startswith('SLURM_STEP_')} }. "
            f"Start every worker with srun, see examples/cluster/slurm.sbatch."
        ) from error


def _named(workers: Mapping[int, str]) -> str:
    return ", ".join(f"worker {i} at {address}" for i, address in workers.items())


class Cluster:
    """The devices of a run and its workers, of which this process is one.

    Args:
        strategy: tf.distribute strategy; None for this process and its default device.
        roster: the workers; None where this process is the only one.

    Attributes:
        index: this worker's number. count: how many there are. chief: whether this one writes what all share.
    """

    def __init__(self, strategy: Optional[tf.distribute.Strategy] = None, roster: Optional[Roster] = None) -> None:
        self.strategy = strategy or tf.distribute.get_strategy()
        self.roster = roster
        self.index, self.count = (roster.index, len(roster.addresses)) if roster else (0, 1)
        self.chief = self.index == 0
        self._sum = tf.function(self._summed)

    def gather(self, values: Any) -> np.ndarray:
        """Numbers [...] of each worker -> float64 [workers, ...] on every worker; all workers call it, or none."""
        values = np.asarray(values, np.float64)
        table = np.zeros((self.count, *values.shape))
        table[self.index] = values
        if self.count == 1:
            return table
        first = self.index * (self.strategy.num_replicas_in_sync // self.count)

        def share(context):
            return tf.constant(table if context.replica_id_in_sync_group == first else np.zeros_like(table))

        return self._sum(self.strategy.experimental_distribute_values_from_function(share)).numpy()

    def _summed(self, values):
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

    def any(self, flag: bool) -> bool:
        """Whether it is true on some worker."""
        return bool(self.gather(float(flag)).any())

    def barrier(self) -> None:
        """Return once every worker is here."""
        self.gather(0.0)

    def agreed(self, value: int, what: str) -> None:
        """Check that a number is the same on all workers.

        Raises:
            TrainingError: it is not.
        """
        values = self.gather(value).astype(int).tolist()
        if len(set(values)) > 1:
            told = ", ".join(f"worker {i}: {v}" for i, v in enumerate(values))
            raise TrainingError(
                f"the workers differ in {what}. Received: {told}. All must see the same run folder and the same shards."
            )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Turn what a collective raises when a peer is gone into WorkerLostError."""
        try:
            yield
        except _LOST as error:
            if self.count == 1:
                raise
            raise WorkerLostError(f"worker {self.index} lost {self._peer(str(error))}: {_cause(str(error))}") from error

    def _peer(self, message: str) -> str:
        tasks = {int(i) for i in re.findall(r"/task:(\d+)", message)} - {self.index}
        return _named({i: self.roster.addresses[i] for i in sorted(tasks)}) if tasks else "another worker"


def _cause(message: str) -> str:
    """The sentence of a TensorFlow error that says what happened."""
    found = re.search(r"aborted by: (.*)", message)
    return (found.group(1) if found else message.strip().splitlines()[0]).split(". ")[0]


def connect(kind: str, seconds: float = 300) -> Cluster:
    """The cluster that `--strategy kind` asks for; call it before anything else that TensorFlow does.

    Args:
        kind: "none": one device. "mirrored": every GPU of this machine. "multiworker": TF_CONFIG or Slurm, every GPU
            of each worker, or its CPU. "tpu": the TPU that TPU_NAME names, "local" where it is not set.
        seconds: how long to wait for the other workers.

    Raises:
        ConfigError: an unknown kind, an environment that describes no cluster, or one of several workers where `kind`
            has one.
        TrainingError: another worker did not come, or there is no such TPU.
    """
    if kind not in STRATEGIES:
        raise ConfigError(f"there is no such strategy. Received: {kind!r}. Known: {', '.join(STRATEGIES)}.")
    if kind == "multiworker":
        return _multiworker(roster(), seconds)
    if kind != "tpu":
        _alone(kind)
    makers = {"none": lambda: None, "mirrored": tf.distribute.MirroredStrategy, "tpu": _tpu}
    return Cluster(makers[kind]())


def _alone(kind: str) -> None:
    """Refuse one of several workers that would each do the whole run, in the same folder."""
    if os.environ.get("TF_CONFIG"):
        found = _from_tf_config(os.environ["TF_CONFIG"])
        if len(found.addresses) > 1:
            raise ConfigError(
                f"TF_CONFIG says that this is one of {len(found.addresses)} workers, and each would do the whole run "
                f"by itself. Received: --strategy {kind}. Say --strategy multiworker, or unset TF_CONFIG."
            )


def _multiworker(workers: Roster, seconds: float) -> Cluster:
    rendezvous.meet(workers.addresses, workers.index, seconds)
    os.environ["TF_CONFIG"] = workers.tf_config()
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.NCCL if tf.config.list_physical_devices("GPU") else kinds.RING,
        timeout_seconds=STALL_SECONDS,
    )
    print(f"worker {workers.index}: all {len(workers.addresses)} workers are there", file=sys.stderr, flush=True)
    try:
        with _ended_after(seconds):
            strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except tf.errors.OpError as error:
        lost = f"worker {workers.index} lost another one at the start: {_cause(str(error))}"
        raise WorkerLostError(lost) from error
    for number in (signal.SIGTERM, signal.SIGINT):  # TensorFlow's cluster made this process deaf to SIGTERM
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    return Cluster(strategy, workers)


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """SIGALRM ends this process if the block takes longer.

    TensorFlow waits without end for a worker that was lost after all had met, and lets no other Python run meanwhile.
    """
    if not hasattr(signal, "SIGALRM"):  # Windows
        yield
        return
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tpu() -> tf.distribute.Strategy:
    """Untested here: there is no TPU."""
    name = os.environ.get("TPU_NAME", "local")
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, KeyError, OSError, RuntimeError, tf.errors.OpError) as error:
        raise TrainingError(
            f"no TPU answers: {_cause(str(error))}. Received: TPU_NAME={name}. See examples/cluster/cloud-tpu.sh."
        ) from error
