"""The checkpoint that ships: what its card states holds here."""

import csv
import json

import numpy as np
import pytest

import lbzoo
from lbzoo.registry import DEFAULT_MODEL
from lbzoo.transfer.reviews import evaluate, read_task
from training.sources import task_folder


@pytest.fixture(scope="module")
def folder(root):
    return root / "lbzoo" / "bundled" / DEFAULT_MODEL


@pytest.fixture(scope="module")
def classifier():
    return lbzoo.SentimentClassifier()


def test_at_least_16_of_the_20_example_reviews_are_labelled_as_a_reader_would(root, classifier):
    with open(root / "examples" / "reviews.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert sum(a == row["label"] for a, row in zip(classifier.predict([row["text"] for row in rows]), rows)) >= 16


def test_it_is_small_and_in_float16(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float16" and config["config"]["units"] == 512
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8e6


def test_the_manifest_states_what_the_card_states(folder):
    card = json.loads((folder / "card.json").read_text())
    stated = lbzoo.info(DEFAULT_MODEL).to_dict()["results"]
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
@pytest.mark.parametrize("task", ["sst", "amazon"])
def test_the_accuracy_on_the_card_is_what_is_measured(task, folder, classifier, data_dir):
    card = json.loads((folder / "card.json").read_text())
    stated = next(r["value"] for r in card["results"] if r["dataset"] == task and r["metric"] == "accuracy")
    measured = 100 * evaluate(classifier, *read_task(task, data_dir / task_folder(task), "test"))
    assert abs(measured - stated) < 0.12  # two texts on the border, on another processor
