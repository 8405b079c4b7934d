"""The checkpoints that ship: what their cards state holds here."""

import csv
import json

import numpy as np
import pytest

import lbzoo
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.transfer.reviews import evaluate, read_task
from training.sources import task_folder

BUNDLED = ("mlstm-1024-reviews", "mlstm-512-reviews")


@pytest.fixture(scope="module", params=BUNDLED)
def folder(request, root):
    return root / "lbzoo" / "bundled" / request.param


@pytest.fixture(scope="module")
def classifier():
    return lbzoo.SentimentClassifier()


def test_at_least_17_of_the_20_example_reviews_are_labelled_as_a_reader_would(root, classifier):
    with open(root / "examples" / "reviews.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert sum(a == row["label"] for a, row in zip(classifier.predict([row["text"] for row in rows]), rows)) >= 17


@pytest.mark.parametrize("name, units, megabytes", [(BUNDLED[0], 1024, 16), (BUNDLED[1], 512, 8)])
def test_it_is_small_and_in_float16(name, units, megabytes, root):
    folder = root / "lbzoo" / "bundled" / name
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float16" and config["config"]["units"] == units
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1e6 * megabytes


def test_the_best_one_is_the_default():
    assert DEFAULT_MODEL == BUNDLED[0]


def test_the_manifest_states_what_the_card_states(folder):
    card = json.loads((folder / "card.json").read_text())
    stated = lbzoo.info(folder.name).to_dict()["results"]
    assert [{k: v for k, v in result.items() if v is not None} for result in stated] == card["results"]
    for result in card["results"] + card["baselines"]:
        assert result["command"] and result["split"] in ("valid", "test")


def test_its_probabilities_are_sure_of_plain_cases_and_do_not_depend_on_company(classifier):
    texts = ["A wonderful film, I loved every minute of it.", "A terrible waste of money, it broke after one day."]
    together = classifier.predict_proba(texts)
    assert classifier.classes_.tolist() == ["negative", "positive"]
    assert together[0, 1] > 0.8 and together[1, 0] > 0.8
    np.testing.assert_allclose(classifier.predict_proba(texts[1:]), together[1:], atol=1e-5)


@pytest.mark.slow
def test_the_accuracy_on_the_card_is_what_is_measured(folder, data_dir):
    card = json.loads((folder / "card.json").read_text())
    stated = next(r["value"] for r in card["results"] if r["dataset"] == "sst" and r["metric"] == "accuracy")
    measured = 100 * evaluate(
        lbzoo.SentimentClassifier(folder), *read_task("sst", data_dir / task_folder("sst"), "test")
    )
    assert abs(measured - stated) < 0.12  # two texts on the border, on another processor
