"""The picture of a run is made of its logs."""

from __future__ import annotations

import numpy as np
import pytest

from lbzoo.errors import TrainingError
from training import curves


@pytest.fixture()
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [f"{step},10000,{2 - step / 400:.3f},{0.2 - step / 4000:.3f}" for step in range(20, 400, 20)]
    (folder / "log.csv").write_text("\n".join(["step,chars_per_second,bpc,sentiment", *lines]) + "\n")
    (folder / "heldout.csv").write_text("step,bpc,sst\n200,1.6,0.7\n380,1.2,\n")
    return folder


def test_a_log_is_read_by_column_with_nan_where_nothing_stands(run):
    columns = curves.table(run / "heldout.csv")
    assert columns["step"].tolist() == [200, 380] and columns["bpc"].tolist() == [1.6, 1.2]
    assert columns["sst"][0] == 0.7 and np.isnan(columns["sst"][1])


def test_smoothing_keeps_the_length_and_a_constant():
    assert curves.smoothed(np.full(40, 3.0)) == pytest.approx(np.full(40, 3.0))
    assert curves.smoothed(np.arange(3.0), width=25).shape == (3,)
    assert curves.smoothed(np.array([0.0, 3.0, 0.0]), width=3).tolist() == [1.5, 1.0, 1.5]


def test_what_is_no_log_is_one_clear_error(tmp_path, capsys):
    (tmp_path / "log.csv").write_text("step,bpc\n1,two\n")
    with pytest.raises(TrainingError, match="cannot be read as a log"):
        curves.table(tmp_path / "log.csv")
    with pytest.raises(TrainingError, match="cannot be read as a log"):
        curves.table(tmp_path / "missing.csv")


def test_the_picture_is_written(run, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason='the extra "plot" is not installed')
    output = tmp_path / "curves.png"
    assert curves.main([str(run), "--output", str(output)]) == 0
    assert output.read_bytes().startswith(b"\x89PNG") and len(output.read_bytes()) > 5000
    assert curves.main([str(tmp_path), "--output", str(output)]) == 1
    assert "log.csv cannot be read" in capsys.readouterr().err
