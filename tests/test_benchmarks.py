"""The benchmarks run and print each ratio; how fast is never asserted."""

import json
import re

import numpy as np
import pytest

from benchmarks import mlstm, prepare, scaling
from benchmarks.step_time import PUBLISHED, all_reduce_seconds


def test_the_mlstm_benchmark_prints_every_ratio(capsys):
    mlstm.main(["--quick"])
    out = capsys.readouterr().out
    for words in (
        "of the bfloat16 GEMM rate",
        "over float32, written out",
        "over lbzoo's plain float32",
        "over torch",
        "of the float32 GEMM rate",
        "of the memory rate",
    ):
        assert words in out
    assert "nan" not in out and "inf" not in out


def test_the_benchmark_of_preparing_prints_rate_and_memory(capfd):
    prepare.main(["--gigabytes", "0.0005", "--workers", "1"])
    out = capfd.readouterr().out
    for words in ("MB of text", "MB/s and core", "MB of memory in all processes", "duplicates left out"):
        assert words in out
    rows = [json.loads(line) for line in prepare.reviews(200_000)]
    assert len({row["reviewText"] for row in rows}) < len(rows)


@pytest.mark.slow
def test_the_scaling_benchmark_prints_ratios_and_the_model_beside_what_was_published_and_measured(capsys):
    scaling.main(["--quick"])
    out = capsys.readouterr().out
    for words in ("two over one, float32", "two over one, bfloat16", "bfloat16 over float32", "characters/s"):
        assert words in out
    rows = re.findall(r"^ +(\d+)  .+? +(\d+) +([\d.]+) +([\d.]+) +([\d.]+|-) +([\d.]+|-) +([+-][\d.]+)%$", out, re.M)
    assert [(int(units), int(workers)) for units, workers, *_ in rows] == [(p.units, p.workers) for p in PUBLISHED] + [
        (16, 2)
    ]
    for *_, model, measured, published, error in rows:
        known = published if measured == "-" else measured
        ratio = float(model) / float(known)
        rounded = sum(0.5 * 10 ** -len(text.partition(".")[2]) / float(text) for text in (model, known))
        np.testing.assert_allclose(float(error), 100 * (ratio - 1), atol=0.06 + 100 * ratio * rounded)
    assert "nan" not in out and " inf" not in out


def test_a_step_of_several_workers_lasts_as_long_as_the_slowest_takes():
    told = [
        {"seconds": [1.0, 5.0, 2.0], "gradient": 1000, "all_reduce": 0.5, "message": 0.02},
        {"seconds": [3.0, 1.0, 4.0], "gradient": 1000, "all_reduce": 0.6, "message": 0.01},
    ]
    sizes = scaling.Sizes(units=16, rows=4, window=8, steps=3)
    pair = scaling.summary(sizes, "mixed_bfloat16/bfloat16", told)
    assert (pair.workers, pair.seconds, pair.characters, pair.bytes) == (2, 4.0, 64, 2000)
    assert pair.rate == 16.0
    np.testing.assert_allclose(all_reduce_seconds(2, pair.bytes, pair.link), 0.6)  # the model repeats what was measured
    one = scaling.summary(sizes, "float32/float32", told[:1])
    assert (one.seconds, one.characters, one.bytes, one.link) == (2.0, 32, 4000, None)
