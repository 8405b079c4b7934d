"""The benchmarks run and print each ratio; how fast is never asserted."""

from benchmarks import mlstm


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
