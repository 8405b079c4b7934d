"""What a run meets on its way: files that vanish, a full or read-only disk, rows that do not come out even, kill -9."""

import os
import re

import numpy as np
import pytest

from lbzoo.errors import ConfigError, TrainingError
from tests import disk_faults, kill_sweep
from training import plan, sample_reviews
from training.data import ByteStream
from training.recipes import recipe
from training.settings import with_settings
from training.shards import open_shards
from training.trainer import Trainer


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return sample_reviews.write(tmp_path_factory.mktemp("shards") / "shards")


def copy_of(shards, folder):
    folder.mkdir()
    for path in shards.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize("name", ["text.bin", "target.bin"])
def test_a_vanished_shard_is_one_clear_error(shards, tmp_path, name):
    opened = open_shards(copy_of(shards, tmp_path / "shards"))
    opened.check()
    (tmp_path / "shards" / name).unlink()
    with pytest.raises(TrainingError, match=f"{name} has gone: No such file.*checkpoint is intact"):
        opened.check()


def test_a_shard_that_is_cut_while_it_is_read_is_an_error_and_no_bus_error(shards, tmp_path):
    stream = ByteStream(copy_of(shards, tmp_path / "shards"), rows=2, window=8, seed=1)
    stream.batch(0)
    os.truncate(tmp_path / "shards" / "text.bin", 100)
    with pytest.raises(TrainingError, match="text.bin was cut to 100 of"):
        stream.batch(1)


def test_a_text_that_does_not_come_out_even_gives_whole_batches_and_finite_losses(shards):
    settings = {"model.units": "8", "model.embedding_dim": "4", "data.rows": "7", "data.window": "23"}
    config = with_settings(recipe("tiny"), settings)
    data = config.data
    stream = ByteStream(shards, data.rows, data.window, config.seed, data.shard_bytes, data.reset)
    per_step, last = data.rows * data.window, stream.steps_per_epoch - 1
    assert 0 < stream.index["bytes"] - (last + 1) * per_step < per_step  # a part of a batch is left over
    trainer = Trainer(config, stream)
    for step in range(last, last + 3):  # the last whole batch of a pass, and the first ones of the next
        assert stream.batch(step).ids.shape == (data.rows, data.window)
        values = trainer.step(step)
        assert all(np.isfinite(float(value)) for value in values.values())
    assert int(trainer.update.skipped) == 0


@pytest.mark.parametrize("rows, replicas", [(1, 2), (3, 4), (5, 2)])
def test_rows_that_cannot_be_shared_out_are_refused(rows, replicas):
    config = with_settings(recipe("tiny"), {"data.rows": str(rows)})
    with pytest.raises(ConfigError, match=f"data.rows={rows}, {replicas} devices"):
        plan.micro_batches(config, replicas)


@pytest.mark.slow
def test_a_full_or_read_only_disk_is_one_clear_error_and_the_last_good_checkpoint_is_intact(tmp_path):
    if not disk_faults.available():
        pytest.skip("this machine lets nobody mount a disk of their own (unshare -r -m)")
    said = dict(line.split(": ", 1) for line in disk_faults.run(tmp_path).splitlines())
    for fault, words in (
        ("full in the middle", "could not save step 2 in .*No space left on device.*good checkpoint is intact"),
        ("full before", "could not save step 3 in .*are free there"),
        ("read-only", "could not save step 4 in .*Read-only file system.*good checkpoint is intact"),
        ("start on a read-only disk", "status 1, .pretrain_mlstm: error: .*Read-only file system"),
    ):
        assert re.search(words, said[fault]), said
    assert said["restored"] == "step 1, 1; left: ['step-00000001']"


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path):
    lines = []
    assert kill_sweep.sweep(kills=2, workers=1, seed=11, folder=tmp_path, say=lines.append), lines
    assert sum(line.startswith("kill ") for line in lines) == 2
