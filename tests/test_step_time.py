"""The model of the time per step: a ring's arithmetic, and every published point of the scaling figure."""

import numpy as np
import pytest

from benchmarks.step_time import (
    ETHERNET,
    FITTED_ON,
    INFINIBAND,
    PUBLISHED,
    Link,
    all_reduce_seconds,
    fitted,
    gradient_bytes,
    published_compute,
    published_fixed,
    published_model,
    step_seconds,
    times_one,
    worst_error,
)
from lbzoo.models.config import MLSTMConfig

SLOW = Link("slow", bandwidth=1000.0, latency=0.5)


@pytest.mark.parametrize(
    "workers, size, seconds",
    [
        (1, 4000, 0.0),
        (2, 4000, 2 * (0.5 + 2.0)),  # there and back, half of it each time
        (4, 4000, 6 * (0.5 + 1.0)),
        (1000, 0, 1998 * 0.5),  # no bytes, the messages alone
    ],
)
def test_a_ring_sends_the_parts_one_after_another(workers, size, seconds):
    np.testing.assert_allclose(all_reduce_seconds(workers, size, SLOW), seconds)


def test_many_workers_send_little_more_than_few():
    fast = Link("no latency", 1000.0, 0.0)
    np.testing.assert_allclose(all_reduce_seconds(10**6, 4000, fast), 2 * 4000 / 1000, rtol=1e-5)


def test_one_worker_pays_for_no_other():
    assert step_seconds(1, 2.0, 4000, SLOW, fixed=1.0) == 2.0
    assert step_seconds(2, 2.0, 4000, SLOW, fixed=1.0) == 2.0 + 1.0 + 5.0
    assert times_one(1, 2.0, 4000, SLOW, fixed=1.0) == 1.0
    assert times_one(2, 2.0, 4000, SLOW, fixed=1.0) == 2 * 2.0 / 8.0


def test_fitting_is_the_inverse_of_the_model():
    np.testing.assert_allclose(fitted(times_one(8, 2.0, 4000, SLOW, 0.3), 8, 2.0, 4000, SLOW), 0.3)


def test_the_published_gpu():
    assert gradient_bytes(MLSTMConfig(4096), 2) == 2 * 86_319_360
    np.testing.assert_allclose(published_compute(4096), 0.897, atol=2e-3)  # 256 x 256 bytes at 73,000 a second
    np.testing.assert_allclose(published_compute(8192) / published_compute(4096), 4, rtol=0.02)


TABLE = {  # times one worker: (published, the model's, fitted on the point that has no error)
    (4096, INFINIBAND): {16: (13.2, 13.6), 32: (27.4, 27.3), 64: (55.7, 54.6), 128: (109.1, 109.1)},
    (4096, ETHERNET): {16: (11.2, 11.0), 32: (23.5, 21.8), 64: (45.7, 43.4), 128: (92.6, 86.2)},
    (8192, INFINIBAND): {16: (15.7, 15.3), 32: (31.4, 30.5), 64: (61.3, 61.0), 128: (120.8, 122.0)},
}


@pytest.mark.parametrize("point", PUBLISHED, ids=lambda p: f"{p.units}-{p.link.name}-{p.workers}")
def test_every_published_point(point):
    published, expected = TABLE[point.units, point.link][point.workers]
    assert point.times == published
    seconds, times = published_model(point, published_fixed())
    np.testing.assert_allclose(times, expected, atol=0.1)
    np.testing.assert_allclose(seconds, point.workers * published_compute(point.units) / times)
    assert abs(times / published - 1) < 0.08
    if point is FITTED_ON:
        np.testing.assert_allclose(times, published, rtol=1e-12)


def test_the_table_has_every_published_point_once():
    assert len(PUBLISHED) == len(set(PUBLISHED)) == sum(len(row) for row in TABLE.values()) == 12


def test_the_error_depends_on_the_point_it_is_fitted_on_and_stays_below_a_sixth():
    errors = [worst_error(point) for point in PUBLISHED]
    np.testing.assert_allclose(worst_error(FITTED_ON), -0.07, atol=0.01)
    assert max(map(abs, errors)) < 1 / 6 and len(set(errors)) == len(PUBLISHED)


def test_without_what_is_fitted_infiniband_would_scale_too_well():
    """Bytes over the link explain Ethernet's loss against InfiniBand, not InfiniBand's own."""
    assert published_model(FITTED_ON, 0.0)[1] > 1.15 * FITTED_ON.times
