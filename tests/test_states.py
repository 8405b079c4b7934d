"""Models kept in memory: under which key, and what may be asked of a reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbzoo import states
from lbzoo.errors import ConfigError


def test_a_name_is_not_taken_for_the_folder_of_that_name(tmp_path, monkeypatch):
    """What a string means depends on its form, in the memory of loaded models too."""
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert states._identity("tiny") == ("tiny",)
    own = states._identity(tmp_path / "tiny")
    assert len(own) == 3 and own == states._identity("./tiny") == states._identity(Path("tiny"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert states._identity("~/tiny") == own
    (tmp_path / "tiny" / "config.json").unlink()
    (tmp_path / "tiny" / "config.json").write_text("{ }")
    assert states._identity("./tiny") != own


def test_what_is_prepared_is_not_prepared_again(tiny_model):
    prepared = states.prepare(tiny_model)
    assert states.prepare(prepared) is prepared and prepared.folder is None


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": None}, {"window": 0}, {"window": 2.5}])
def test_sizes_are_checked_by_the_call(tiny_model, options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} must be a positive integer"):
        states.prepare(tiny_model).reader().iter_read(["x"], **options)
