"""Held-out texts that come with the shards."""

from training import heldout, sample_reviews
from training.inputs import Fields
from training.prepare_reviews import Policy, prepare
from training.shards import open_shards


def prepared(folder, lines):
    (folder / "in.txt").write_text(
        "".join(f"review number {i} is of a kettle that is as good as {i}\n" for i in range(lines))
    )
    prepare([folder / "in.txt"], folder / "shards", Policy("reviews", Fields(), 1, (4, 1, 1)), workers=1)
    return folder / "shards"


def test_the_split_valid_is_what_bits_are_measured_on(tmp_path):
    shards = prepared(tmp_path, 1000)
    valid = list(open_shards(shards, "valid").documents())
    found = heldout.held_out_shards(shards)
    assert found.characters == valid and found.labelled == {}
    some = heldout.held_out_shards(shards, characters=5000).characters
    assert some == valid[: len(some)] and 5000 <= sum(map(len, some)) < 5200


def test_too_little_text_or_none_gives_no_figures(tmp_path):
    assert heldout.held_out_shards(prepared(tmp_path, 60)) is None
    assert heldout.held_out_shards(sample_reviews.write(tmp_path / "no-splits")) is None
