"""README's GLUE table is what the result files say, and figures of dev and of test stand apart."""

from __future__ import annotations

import copy
import json
import re

import pytest

from training import glue_report
from training.glue_report import END, START, read_results, table, with_table

RUN = {"rate": 1e-5, "seed": 1, "minutes": 2.0}
RTE = {
    "task": "rte",
    "model": "some-bert",
    "train_rows": 2490,
    "early_stopping": False,
    "learning_rates": [1e-5],
    "no_better_than_majority": [],
    "minutes": 2.04,
    "majority_baseline": {"dev": {"accuracy": 0.527}},
    "dev": {"dev": {"accuracy": {"median": 0.61, "lowest": 0.59, "highest": 0.642, "values": [0.61, 0.59, 0.642]}}},
    "runs": [RUN] * 3,
}


def other(**changes):
    return {**copy.deepcopy(RTE), **changes}


def put(root, *results):
    """A checkout with these results and a README."""
    folder = root / "training" / "glue_results"
    folder.mkdir(parents=True)
    for number, result in enumerate(results):
        (folder / f"{number}.json").write_text(json.dumps(result))
    (root / "README.md").write_text(f"before\n{START}\nold\n{END}\nafter\n")
    return root


def test_the_table_has_a_row_for_a_metric_and_a_column_for_a_model():
    rows = table([RTE, other(model="a-model", learning_rates=[1e-5, 2e-5], no_better_than_majority=[2])]).splitlines()
    assert rows[0] == "| task | metric | majority | `a-model` | `some-bert` | BERT-base, published, test |"
    assert rows[2] == (
        "| RTE | accuracy | 52.7 | 61.0 (59.0 to 64.2) a b<br>3 seeds, 2.0 min | "
        "61.0 (59.0 to 64.2)<br>3 seeds, 2.0 min | 66.4 |"
    )
    assert len(rows) == 5 and rows[4].startswith("On dev, in percent")


def test_a_model_as_it_was_used_has_a_column_of_its_own(tmp_path):
    plain = {"learning_rates": [], "learning_rate": None, "train_rows": 2490}
    used = [RTE, other(system="frozen", **plain), other(system="tfidf", model=None, **plain)]
    put(tmp_path, *used)
    assert read_results(tmp_path / "training" / "glue_results") == used
    rows = table(used).splitlines()
    head = "| task | metric | majority | TF-IDF, linear | `some-bert` | `some-bert`, frozen, linear |"
    assert rows[0] == f"{head} BERT-base, published, test |"
    assert rows[2].count("61.0 (59.0 to 64.2)<br>3 seeds") == 3 and " a<br>" not in rows[2]


def test_a_model_without_a_result_and_a_metric_without_a_value_are_shown_as_such():
    none = {"median": None, "lowest": None, "highest": None, "values": [None] * 3}
    cola = other(
        task="cola",
        model="x",
        train_rows=8551,
        majority_baseline={"dev": {"matthews": None}},
        dev={"dev": {"matthews": none}},
    )
    rows = table([RTE, cola]).splitlines()
    assert rows[2] == (
        "| CoLA | Matthews correlation | undefined | - | "
        "undefined (3 of 3 seeds without a value)<br>3 seeds, 2.0 min | 52.1 |"
    )
    assert rows[3].startswith("| RTE | accuracy | 52.7 | 61.0") and rows[3].endswith(" | - | 66.4 |")


def test_wnli_is_not_marked_and_has_no_published_figure():
    wnli = other(task="wnli", train_rows=635, no_better_than_majority=[1, 2, 3])
    assert table([wnli]).splitlines()[2].endswith("61.0 (59.0 to 64.2)<br>3 seeds, 2.0 min | - |")


def test_without_results_nothing_stands_between_the_markers(tmp_path):
    assert table([]) == ""
    assert with_table(f"a\n{START}\nold\n{END}\nb", []) == f"a\n{START}\n{END}\nb"
    for broken in ("", START, END, END + START, START + END + START):
        with pytest.raises(ValueError, match="each of these lines once"):
            with_table(broken, [])


def test_the_command_writes_the_table_and_check_finds_an_old_one(tmp_path, capsys):
    root = put(tmp_path, RTE)
    assert glue_report.main(["--check"], root) == 1
    assert "out of date; run: python -m training.glue_report" in capsys.readouterr().err
    assert glue_report.main([], root) == 0 and glue_report.main(["--check"], root) == 0
    text = (root / "README.md").read_text()
    assert text.startswith(f"before\n{START}\n| task |") and text.endswith(f"\n{END}\nafter\n")
    assert "\nold\n" not in text


@pytest.mark.parametrize(
    "results, message",
    [
        ([other(train_rows=200)], "trained on 200 of 2490 rows"),
        ([RTE, RTE], "1.json: there is another result of `some-bert` on rte"),
        ([RTE, {"task": "rte"}], "1.json is no results.json of .* Received: no model, train_rows, dev"),
        ([[RTE]], "0.json is no results.json of"),
        ([other(task="squad")], "0.json is no results.json .* Received: task 'squad'"),
    ],
)
def test_what_is_no_result_of_its_own_is_refused(results, message, tmp_path, capsys):
    root = put(tmp_path, *results)
    with pytest.raises(ValueError, match=message):
        read_results(root / "training" / "glue_results")
    assert glue_report.main([], root) == 1 and re.search(message, capsys.readouterr().err)
    (root / "training" / "glue_results" / "0.json").write_text("{")
    assert glue_report.main([], root) == 1 and "0.json cannot be parsed: it is not JSON" in capsys.readouterr().err


def test_readme_is_up_to_date(root):
    assert glue_report.main(["--check"], root) == 0
