"""The whole way of `mlstm-4096-amazon` at its real size: 345 MB of made-up weights fetched, converted, computed."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest

from lbzoo import checkpoint, hub, registry, verify
from lbzoo.convert import openai_mlstm
from lbzoo.manifest import HubSource, OpenAIRelease, ReleaseFile
from tests import fake_hub, hub_bench


@pytest.mark.slow
def test_the_release_at_full_size(tmp_path: Path, monkeypatch, record_property) -> None:
    entry = registry.find("mlstm-4096-amazon")
    generator = np.random.default_rng(0)
    tensors = {
        name: np.float32(0.02) * generator.standard_normal(shape, dtype=np.float32)
        for name, shape in entry.config.shapes().items()
    }
    for name in ("gx", "gh", "gmx", "gmh"):
        tensors[name] += 1
    npy = openai_mlstm.write_npy_folder(tensors, tmp_path / "npy")
    assert sum(path.stat().st_size for path in npy.iterdir()) == 345_278_640  # as derived in the card

    (release,) = [source for source in entry.sources if isinstance(source, OpenAIRelease)]
    kept = [source for source in entry.sources if isinstance(source, HubSource)]
    with fake_hub.running() as server:
        files = []
        for file in release.files:
            path = npy / Path(file.path).name
            if file.size is not None:
                assert path.stat().st_size == file.size, file.path  # the real header's length, too
            data = path.read_bytes()
            path.unlink()
            server.raw[f"/{release.repo}/{release.commit}/{file.path}"] = data
            files.append(ReleaseFile(file.path, fake_hub.git_sha1(data), len(data)))
        made_up = dataclasses.replace(entry, sources=(*kept, dataclasses.replace(release, files=tuple(files))))
        for name, value in {**hub_bench.FAST, "LBZOO_TIMEOUT": "30", "LBZOO_RELEASE_ENDPOINT": server.url}.items():
            monkeypatch.setenv(name, value)
        started = time.perf_counter()
        folder = hub.resolve(made_up, cache=tmp_path / "cache", progress=False).folder
        fetched = time.perf_counter() - started
        server.heal()

        started = time.perf_counter()
        assert hub.resolve(made_up, cache=tmp_path / "cache", offline=True).folder == folder
        verified = time.perf_counter() - started
        assert not server.log
    import lbzoo.models.mlstm  # noqa: F401 (the start of TensorFlow is not timed)

    started = time.perf_counter()
    model = checkpoint.load(folder)
    loaded = time.perf_counter() - started
    print(f"\n345 MB: fetch and convert {fetched:.1f} s; verify {verified:.2f} s; verify and load {loaded:.2f} s")
    for name, variable in model.named_weights().items():
        assert np.array_equal(variable.numpy(), tensors[name]), name

    rows = list(verify.openai_checks(tensors, verify._features_of(folder)))
    assert len(rows) == 1 + len(verify.GOLDEN_FEATURES) + len(verify.GOLDEN_UNIT_VALUES)
    assert not any(row.ok for row in rows)  # these weights are made up
    assert all(np.isfinite(float(row.received)) for row in rows[1:])
