"""`lbzoo.verify`: rows that are right for right folders and wrong for wrong ones, and OpenAI's golden values."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from lbzoo import hub, registry, verify
from lbzoo.errors import CheckpointError, LbzooError
from lbzoo.zoo import check_table
from tests import hub_bench
from tests.hub_bench import HUB, RELEASE


@pytest.fixture(params=[HUB, RELEASE])
def bench(request):
    with hub_bench.bench(request.param) as made:
        yield made


def test_a_right_checkpoint(bench) -> None:
    rows = verify.verify_entry(bench.entry, cache=bench.cache)
    assert {"card.json", "model.safetensors", "names, shapes, dtype"} <= {row.check for row in rows}
    assert all(row.ok for row in rows)
    assert "FAILED" not in check_table(rows)
    assert verify.verify_entry(bench.entry, cache=bench.cache, offline=True) == rows


def test_a_changed_folder_is_a_failed_row(bench, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bench.get(), tmp_path / "copy"))
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(data))
    (folder / "card.json").unlink()
    failed = [row for row in verify.verify_entry(folder) if not row.ok]
    assert sorted(row.check for row in failed) == ["card.json", "model.safetensors"]
    assert "FAILED  model.safetensors" in check_table(failed)
    with pytest.raises(CheckpointError):
        verify.verify_entry(tmp_path)


def test_all_that_is_bundled_or_cached(bench, monkeypatch) -> None:
    monkeypatch.setattr(registry, "entries", lambda: (bench.entry,))
    assert verify.verify_all(cache=bench.cache, offline=True) == {}
    bench.get()
    with hub_bench.bench(HUB) as other:
        other.server.add_repo("some/one", other.files)
        hub.resolve_repo("some/one", cache=bench.cache)
    found = verify.verify_all(cache=bench.cache, offline=True)
    assert len(found) == 2 and "tiny" in found and next(iter(set(found) - {"tiny"})).startswith("some/one@")
    assert all(row.ok for rows in found.values() for row in rows)
    bench.spoil()
    found = verify.verify_all(cache=bench.cache, offline=True)
    assert isinstance(found["tiny"], LbzooError)


def golden(texts: list[str]) -> np.ndarray:
    values = np.zeros((len(texts), 4096), "float32")
    for unit, value in verify.GOLDEN_FEATURES.items():
        values[texts.index(verify.GOLDEN_TEXT), unit] = value
    for text, value in verify.GOLDEN_UNIT_VALUES.items():
        values[texts.index(text), 2388] = value
    return values


def test_golden_values() -> None:
    gains = {"gmx": np.full(4096, 1.86, "float32"), "gmh": np.full(4096, 1.86, "float32")}
    rows = list(verify.openai_checks(gains, golden))
    assert len(rows) == 15 and all(row.ok for row in rows)
    gains["gmh"][7] += 2e-5
    rows = list(verify.openai_checks(gains, lambda texts: golden(texts) + 0.0011))
    assert not any(row.ok for row in rows)
    rows = list(verify.openai_checks(gains, lambda texts: np.tanh(golden(texts))))  # the paper's tanh, not the code's
    assert sum(row.ok for row in rows) < 8
    rows = list(verify.openai_checks(gains, lambda texts: golden(texts) * np.nan))
    assert not any(row.ok for row in rows)


def test_the_golden_values_are_asked_of_openais_weights_only(bench, monkeypatch) -> None:
    bench.get()
    monkeypatch.setattr(verify, "OPENAI_MODEL", "tiny")
    monkeypatch.setattr(verify, "_features_of", lambda folder: golden)
    rows = verify.verify_entry(bench.entry, cache=bench.cache, offline=True)
    assert [row.check for row in rows if not row.ok] == ["gmx equals gmh"]
