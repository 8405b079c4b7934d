"""What every test stands on: no network, a quiet TensorFlow, the data folder, and one tiny model."""

from __future__ import annotations

import io
import os

# before anything imports TensorFlow or the Hub's client
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DOWNLOAD_TIMEOUT"] = "1"  # seconds; the servers are on loopback

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests import network_guard

ROOT = Path(__file__).resolve().parent.parent

network_guard.install()

settings.register_profile(
    "lbzoo", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "lbzoo"))


@pytest.fixture(autouse=True)
def no_network() -> Iterator[list[str]]:
    """Fail a test that tried to leave loopback, even where the code under test swallowed the error.

    Yields the list of attempts; a test that tries on purpose clears it.
    """
    network_guard.ATTEMPTS.clear()
    yield network_guard.ATTEMPTS
    attempts = list(network_guard.ATTEMPTS)
    network_guard.ATTEMPTS.clear()
    assert not attempts, f"the test tried to leave loopback: {attempts}"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's root."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the data sets, from LBZOO_DATA; the test is skipped where it is not set."""
    value = os.environ.get("LBZOO_DATA")
    if not value:
        pytest.skip("LBZOO_DATA is not set: it names the folder of the data sets (amazon, imdb, sst2_sentence, ...)")
    folder = Path(value).resolve()
    if not folder.is_dir():
        pytest.fail(f"LBZOO_DATA must name a folder. Received: {value}.")
    return folder


@pytest.fixture(scope="session")
def tiny_model():
    """An mLSTM language model of 8 units with fixed random weights; treat it as read-only."""
    from lbzoo.models.config import MLSTMConfig
    from lbzoo.models.mlstm import MLSTMLanguageModel

    return seeded(MLSTMLanguageModel(MLSTMConfig(units=8, embedding_dim=4)))


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_model, tmp_path_factory) -> Path:
    """The checkpoint folder of `tiny_model`; copy it before changing a file."""
    from lbzoo import checkpoint

    return Path(checkpoint.save(tiny_model, tmp_path_factory.mktemp("checkpoints") / "tiny"))


@pytest.fixture(scope="session")
def probed(tiny_model, tmp_path_factory) -> str:
    """A checkpoint folder with a probe, as an argument of a command; copy it before changing a file."""
    from lbzoo import checkpoint
    from lbzoo.transfer.probe import Probe

    units = tiny_model.config.units
    coef = np.random.default_rng(3).normal(size=(1, units)).astype(np.float32)
    probe = Probe(coef, np.zeros(1, np.float32), ["negative", "positive"], state="hidden")
    folder = tmp_path_factory.mktemp("cli") / "tiny"
    checkpoint.save(tiny_model, folder, probe=probe, card={"description": "random numbers"})
    return str(folder)


@pytest.fixture
def run(capsysbinary, monkeypatch):
    """Run a command line: (status, standard output, standard error), both as text."""

    from lbzoo import cli

    def run(*argv, stdin=b""):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = cli.main([str(arg) for arg in argv])
        except SystemExit as leave:
            status = leave.code
        out, err = capsysbinary.readouterr()
        return status, out.decode("utf-8"), err.decode("utf-8")

    return run


def one_error(err):
    """The only line on standard error, which is an error."""
    lines = err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("lbzoo: error: "), err
    return lines[0]


def seeded(model, seed: int = 0):
    """Give every weight of `model` a fixed random value, the gains near one, and return it."""
    generator = np.random.default_rng(seed)
    for name, variable in model.named_weights().items():
        values = generator.normal(0.0, 0.3, variable.shape)
        if name in ("gx", "gh", "gmx", "gmh"):
            values = 1.0 + 0.1 * values
        variable.assign(values.astype(np.float32))
    return model
