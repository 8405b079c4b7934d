"""A model of the time that W workers take for a step, and the published scaling that it is held against.

    step(1) = compute
    step(W) = compute + fixed + all_reduce(W)
    all_reduce(W) = 2 (W - 1) (latency + size / W / bandwidth)

The all-reduce is a ring's (Patarasuk & Yuan 2009): 2 (W - 1) messages, one after another, each of the gradient's W-th
part, as fast as the slowest link on the ring. It begins when the gradient is complete, in the published code as in
lbzoo's. `fixed` is what a step costs beyond that as soon as there is a second worker, however many there are: packing
the gradient, waiting for the slowest. It is the one number that is fitted, on one published point.

Sources:
    [P18]   Puri, Kirby, Yakovenko, Catanzaro 2018, "Large Scale Language Modeling: Converging on 40GB of Text in Four
            Hours", abstract: 128 V100, 32k rows, three passes in four hours
    [N fig] NVIDIA/sentiment-discovery, figures/distributed_scalability.png, read off to about 0.5 % of the axis: 256
            rows a GPU, mixed precision, NCCL 2, DGX-1V with InfiniBand and with 10 Gb/s Ethernet
    [N]     the same at the tag v0.3.large_batch_stable, distributed.py: the gradient is summed in float16, after the
            backward pass
    [DGX]   NVIDIA's white paper on the DGX-1 with V100: eight GPUs and four 100 Gb/s InfiniBand cards
    [here]  assumed
"""

from __future__ import annotations

import dataclasses
import math

from lbzoo.models.config import MLSTMConfig


@dataclasses.dataclass(frozen=True)
class Link:
    """The slowest hop of a ring: bytes a second one way, and seconds that a message takes whatever its size."""

    name: str
    bandwidth: float
    latency: float


@dataclasses.dataclass(frozen=True)
class Point:
    """One published figure: so many `workers` of a model of `units` did `times` the work of one."""

    units: int
    link: Link
    workers: int
    times: float


INFINIBAND = Link("InfiniBand", 4 * 100e9 / 8, 2e-6)  # [DGX]; latency [here]
ETHERNET = Link("10 Gb Ethernet", 10e9 / 8, 5e-5)  # [N fig]; latency [here]

PUBLISHED = tuple(  # [N fig]
    Point(units, link, workers, times)
    for units, link, row in (
        (4096, INFINIBAND, (13.2, 27.4, 55.7, 109.1)),
        (4096, ETHERNET, (11.2, 23.5, 45.7, 92.6)),
        (8192, INFINIBAND, (15.7, 31.4, 61.3, 120.8)),
    )
    for workers, times in zip((16, 32, 64, 128), row)
)
FITTED_ON = PUBLISHED[3]  # the run of [P18], whose rate is known too

_ROWS, _WINDOW = 256, 256  # of one GPU in a step: [N fig], [N]
_RUN_CHARACTERS = 3 * 73_000 * 2048 * 256  # [P18] three passes; one is [N] 73,000 iterations of 2048 rows of 256 bytes
_RUN_SECONDS = 4 * 3600  # [P18]


def all_reduce_seconds(workers: int, size: float, link: Link) -> float:
    """Seconds in which `workers` in a ring sum `size` bytes each; 0 for one."""
    return 2 * (workers - 1) * (link.latency + size / workers / link.bandwidth)


def step_seconds(workers: int, compute: float, size: float, link: Link, fixed: float = 0.0) -> float:
    """Seconds of a step.

    Args:
        compute: seconds in which one worker does its own rows.
        size: bytes of the gradient as it travels.
        fixed: seconds beside the all-reduce, where there are several workers.
    """
    return compute + (fixed if workers > 1 else 0.0) + all_reduce_seconds(workers, size, link)


def times_one(workers: int, compute: float, size: float, link: Link, fixed: float = 0.0) -> float:
    """How many times the characters of one worker `workers` read in a second, each doing as many rows as that one."""
    return workers * compute / step_seconds(workers, compute, size, link, fixed)


def fitted(times: float, workers: int, compute: float, size: float, link: Link) -> float:
    """The `fixed` with which `times_one` gives `times`."""
    return workers * compute / times - step_seconds(workers, compute, size, link)


def products(config: MLSTMConfig) -> int:
    """Multiplications of one byte in the recurrent and output matrices: what the time of a step goes with."""
    return 5 * config.units**2 + config.vocab_size * config.units


def gradient_bytes(config: MLSTMConfig, bytes_each: int) -> int:
    """Size of the gradient of a language model."""
    return bytes_each * sum(math.prod(shape) for shape in config.shapes().values())


def published_compute(units: int) -> float:
    """Seconds of a step of one published GPU: the rate of [P18] over the speed-up of its cluster, for 4096 units.

    Another size is taken to do as many products a second.
    """
    rate = _RUN_CHARACTERS / _RUN_SECONDS / FITTED_ON.times
    share = products(MLSTMConfig(units)) / products(MLSTMConfig(FITTED_ON.units))
    return _ROWS * _WINDOW / rate * share


def published_fixed(point: Point = FITTED_ON) -> float:
    """`fixed` of the published cluster, fitted on `point` alone."""
    return fitted(point.times, point.workers, *_published(point))


def published_model(point: Point, fixed: float) -> tuple[float, float]:
    """(seconds of a step, times one worker) that the model gives for a published point."""
    return step_seconds(point.workers, *_published(point), fixed), times_one(point.workers, *_published(point), fixed)


def worst_error(fitted_on: Point) -> float:
    """Largest error over all published points, signed, as a share of what was published, when fitted on one of them."""
    fixed = published_fixed(fitted_on)
    return max((published_model(p, fixed)[1] / p.times - 1 for p in PUBLISHED), key=abs)


def _published(point: Point) -> tuple[float, float, Link]:
    return published_compute(point.units), gradient_bytes(MLSTMConfig(point.units), 2), point.link
