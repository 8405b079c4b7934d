"""The benchmarks run and print each ratio; how fast is never asserted."""

import json

from benchmarks import mlstm, prepare


def test_the_mlstm_benchmark_prints_every_ratio(capsys):
    mlstm.main(["--quick"])
    out = capsys.readouterr().out
    for words in (
        "of the bfloat16 GEMM rate",
        "over plain float32 autodiff",
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
