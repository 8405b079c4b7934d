"""The update on two replicas in one process (MirroredStrategy on two logical CPUs): `mirrored_update.py` runs it."""

import json
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture(scope="module")
def results(root):
    command = [sys.executable, "-m", "tests.mirrored_update"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_infinite_gradient_on_the_second_replica_changes_nothing_on_either(results):
    bad = results["bad"]
    assert bad["unchanged"] and bad["same_on_both"]
    assert bad["copies"] == [2] * len(bad["copies"]) and len(bad["copies"]) == 2 + 5 + 1  # iterations, m and v of two
    assert (bad["skipped"], bad["scale"]) == (1, 2.0**14)


def test_the_step_after_it_counts_again(results):
    bad = results["bad"]
    assert (bad["iterations"], bad["in_a_row"]) == (4, 0)
    np.testing.assert_allclose(bad["rate"], 1e-2 * (1 - 3 / 50), rtol=1e-6)  # of the fourth optimizer step


def test_ten_in_a_row_name_the_step_and_the_replica(results):
    error = results["bad"]["error"]
    assert "10 steps in a row" in error and "at step 15" in error  # 4 done, 1 + 10 skipped
    assert "worker 0 (replica 1 of 2)" in error and "loss scale is down to 16" in error


@pytest.mark.parametrize("other", ["two", "two accumulated", "one accumulated"])
def test_replicas_and_micro_batches_equal_one_large_batch(results, other):
    for key in ("scalars", "w", "v"):
        np.testing.assert_allclose(results[other][key], results["one"][key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("other, tolerance", [("two in float16", 1e-3), ("two in bfloat16", 1e-2)])
def test_gradients_that_travel_in_half_the_bytes_lose_that_precision_and_no_more(results, other, tolerance):
    for key in ("scalars", "w", "v"):
        np.testing.assert_allclose(results[other][key], results["two"][key], rtol=tolerance, atol=tolerance)
    assert np.abs(np.subtract(results[other]["w"], results["two"]["w"])).max() > 1e-7  # they did travel so


def test_one_replica_sends_nothing_and_rounds_nothing(results):
    assert results["one in bfloat16"] == results["one"]


def test_what_overflows_on_the_way_is_skipped_and_its_replica_named(results):
    assert results["overflow"] == {"unchanged": True, "skipped_by": 1, "iterations": 1}


def test_the_rows_of_an_mlstm_divided_among_replicas_and_micro_batches_train_as_they_do_together(results):
    one, two = results["mlstm on one"], results["mlstm on two"]
    for key in ("bits", "state", "weights"):
        np.testing.assert_allclose(two[key], one[key], rtol=1e-5, atol=1e-6)
