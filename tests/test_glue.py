"""GLUE's table, its files and the Hub's copy: every task from the same code, labels by name."""

from __future__ import annotations

import sys
import types

import pytest

from lbzoo.errors import ConfigError, DownloadError, MissingPartError, TableError
from lbzoo.transfer.glue import TASKS, find_task
from lbzoo.transfer.glue_files import HUB_COMMIT, read_hub_split, read_split, write_submission
from lbzoo.transfer.glue_metrics import majority_baseline
from tests.glue_folder import made_glue, made_split, made_text, write_rows

HERE = [(name, split) for name, task in TASKS.items() if name not in ("qqp", "mnli", "qnli") for split in task.rows]


def test_the_table_has_the_nine_tasks_and_the_diagnostic_set():
    assert list(TASKS) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax"]
    files = [name for task in TASKS.values() for name in task.submission.values()]
    assert files == [
        *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"),
        *("QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv"),
    ]
    for task in TASKS.values():
        assert len(task.in_files) == len(task.labels) and set(task.baseline) <= set(task.dev_splits)


@pytest.mark.parametrize("given, name", [("SST-2", "sst2"), ("sts-b", "stsb"), ("MNLI", "mnli"), ("rte", "rte")])
def test_a_task_is_found_by_any_of_its_usual_spellings(given, name):
    assert find_task(given).name == name


def test_an_unknown_task_lists_the_known_ones():
    with pytest.raises(ConfigError, match="no task of this name. Received: 'squad'. Known: cola, sst2"):
        find_task("squad")


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_every_split_of_the_official_layout_is_read(name, packed, tmp_path):
    task = TASKS[name]
    for split in task.rows:
        made_split(tmp_path, task, split, 6, packed)
        found = read_split(task, tmp_path, split)
        count = len(task.labels or (0, 1))
        assert len(found.texts) == 6 and found.damaged == 0 and found.index == [str(i) for i in range(6)]
        pairs = [tuple(made_text(row, place, row % count) for place in range(len(task.texts))) for row in range(6)]
        assert found.texts == (pairs if len(task.texts) == 2 else [text for (text,) in pairs])
        if split in task.submission:
            assert found.labels is None
        elif task.regression:
            assert found.labels == [0.0, 5.0] * 3
        else:
            assert found.labels == [task.labels[row % count] for row in range(6)]


def test_quotation_marks_and_odd_line_ends_are_characters(tmp_path):
    texts = ['" opened and not closed', 'a "" b', "next\u2028line\x85", "a\rb", "\\n 'quoted'"]
    rows = [[text, str(i % 2)] for i, text in enumerate(texts)]
    path = write_rows(tmp_path / "SST-2" / "dev.tsv", [["sentence", "label"], *rows])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"1\n", b"1\r\n"))
    found = read_split(TASKS["sst2"], tmp_path, "dev")
    assert found.texts == texts and found.labels == ["negative", "positive"] * 2 + ["negative"]


def test_rows_that_lack_cells_or_a_label_are_passed_over_and_counted(tmp_path):
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    rows = [["0", "1", "2", "a?", "b?", "1"], ["1", "1", "2", "cut"], ["2", "1", "2", "a", "b", ""], ["3", *"12ab0"]]
    write_rows(tmp_path / "QQP" / "train.tsv", [header, *rows])
    found = read_split(TASKS["qqp"], tmp_path, "train")
    assert found.damaged == 2 and found.index == ["0", "3"] and found.labels == ["duplicate", "not_duplicate"]
    assert found.take([1]).texts == [("a", "b")] and found.take([1]).index == ["3"]


def test_a_test_split_must_be_whole(tmp_path):
    write_rows(tmp_path / "QQP" / "test.tsv", [["id", "question1", "question2"], ["0", "a", "b"], ["1", "a"]])
    with pytest.raises(TableError, match=r"line 3 must have 3 cells. Received: 2. The leaderboard wants every row"):
        read_split(TASKS["qqp"], tmp_path, "test")


@pytest.mark.parametrize(
    "name, header, row, message",
    [
        ("rte", ["index", "sentence1", "sentence2", "label"], ["0", "a", "b", "yes"], "unknown label. Received: 'yes'"),
        ("stsb", ["sentence1", "sentence2", "score"], ["a", "b", "5.1"], "a number from 0 to 5. Received: '5.1'"),
        ("stsb", ["sentence1", "sentence2", "score"], ["a", "b", "nan"], "a number from 0 to 5. Received: 'nan'"),
        ("rte", ["index", "premise", "label"], ["0", "a", "entailment"], "lacks the column sentence1, sentence2"),
        ("rte", ["index", "sentence1", "sentence2", "label"], ["0"], "has no row that can be used"),
    ],
)
def test_a_file_that_is_not_as_published_is_one_error(name, header, row, message, tmp_path):
    write_rows(tmp_path / TASKS[name].folder / "dev.tsv", [header, row])
    with pytest.raises(TableError, match=message):
        read_split(TASKS[name], tmp_path, "dev")


def test_missing_files_broken_archives_and_unknown_splits_are_told(tmp_path):
    with pytest.raises(TableError, match="does not exist, nor does a .gz of it"):
        read_split(TASKS["rte"], tmp_path, "dev")
    with pytest.raises(ConfigError, match="mnli has the splits train, dev_matched, .* Received: split='dev'"):
        read_split(TASKS["mnli"], tmp_path, "dev")
    path = made_split(tmp_path, TASKS["rte"], "dev", 50, packed=True)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(TableError, match="cannot be read"):
        read_split(TASKS["rte"], tmp_path, "dev")
    (path.parent / "dev.tsv").write_bytes(b"index\tsentence1\tsentence2\tlabel\n0\t\xff\tb\tentailment\n")
    with pytest.raises(TableError, match="is not UTF-8"):
        read_split(TASKS["rte"], tmp_path, "dev")


@pytest.mark.parametrize("name, split", HERE)
def test_the_data_are_as_the_table_says(name, split, data_dir):
    task = TASKS[name]
    found = read_split(task, data_dir / "glue", split)
    assert len(found.texts) == task.rows[split] and found.damaged == 0 and len(set(found.index)) == len(found.index)
    if split in task.baseline:
        assert majority_baseline(task, found.labels).values == pytest.approx(task.baseline[split])


def test_the_baseline_of_qnli_is_as_the_table_says(data_dir):
    found = read_split(TASKS["qnli"], data_dir / "glue", "dev")
    assert majority_baseline(TASKS["qnli"], found.labels).values == pytest.approx(TASKS["qnli"].baseline["dev"])


# the leaderboard's files


@pytest.mark.parametrize("name", TASKS)
def test_a_submission_has_the_leaderboards_names_and_labels(name, tmp_path):
    task = TASKS[name]
    made_glue(tmp_path, name)
    for split, file in task.submission.items():
        test = read_split(task, tmp_path, split)
        answers = [-0.5, 5.5, 2.0, 0.12345, 1.0, 4.0] if task.regression else [task.labels[-1]] * 6
        path = write_submission(task, test, answers, tmp_path)
        header, *rows = path.read_text(encoding="utf-8").splitlines()
        assert path.name == file and header == "index\tprediction"
        wanted = {"cola": "1", "sst2": "1", "mrpc": "1", "qqp": "1", "wnli": "1", "mnli": "contradiction"}
        if task.regression:
            assert [row.split("\t")[1] for row in rows] == ["0.000", "5.000", "2.000", "0.123", "1.000", "4.000"]
        else:
            last = wanted.get(name, "contradiction" if name == "ax" else "not_entailment")
            assert rows == [f"{row}\t{last}" for row in range(6)]


def test_a_submission_of_other_labels_or_of_too_few_rows_is_refused(tmp_path):
    made_glue(tmp_path, "rte")
    test = read_split(TASKS["rte"], tmp_path, "test")
    with pytest.raises(ConfigError, match="not among the classes .* Received: 'LABEL_0'"):
        write_submission(TASKS["rte"], test, ["LABEL_0"] * 6, tmp_path)
    with pytest.raises(ConfigError, match="Received: 1 answers to the 6 rows of test"):
        write_submission(TASKS["rte"], test, ["entailment"], tmp_path)
    with pytest.raises(ConfigError, match="rows of dev"):
        write_submission(TASKS["rte"], read_split(TASKS["rte"], tmp_path, "dev"), ["entailment"] * 12, tmp_path)
    assert not (tmp_path / "RTE.tsv").exists()


# the Hub


class _Data(dict):
    """What `datasets.load_dataset` gives, as far as it is used: columns, and `features`."""

    def __init__(self, columns, names):
        super().__init__(columns)
        self.features = {**dict.fromkeys(columns), "label": types.SimpleNamespace(names=names)}


@pytest.fixture
def hub(monkeypatch):
    """Put a stand-in of the datasets library in place; the list of calls, and what they give."""
    calls, gives = [], []

    def load_dataset(*names, **options):
        calls.append((names, options))
        if isinstance(gives[0], Exception):
            raise gives[0]
        return gives[0]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return calls, gives


def test_the_hubs_copy_is_read_by_label_names_whatever_their_order(hub):
    calls, gives = hub
    columns = {"premise": ["a", "c"], "hypothesis": ["b", "d"], "label": [0, 2], "idx": [7, 8]}
    gives[:] = [_Data(columns, ["contradiction", "entailment", "neutral"])]
    found = read_hub_split(TASKS["mnli"], "dev_mismatched")
    assert calls == [(("nyu-mll/glue", "mnli"), {"split": "validation_mismatched", "revision": HUB_COMMIT})]
    assert found.texts == [("a", "b"), ("c", "d")] and found.labels == ["contradiction", "neutral"]
    assert found.index == ["7", "8"]


def test_single_texts_scores_and_test_splits_come_from_the_hub_as_well(hub):
    calls, gives = hub
    gives[:] = [_Data({"sentence": ["a"], "label": [-1], "idx": [0]}, ["negative", "positive"])]
    found = read_hub_split(TASKS["sst2"], "test")
    assert found.texts == ["a"] and found.labels is None
    gives[:] = [_Data({"sentence1": ["a"], "sentence2": ["b"], "label": [2.5]}, None)]
    assert read_hub_split(TASKS["stsb"], "dev").labels == [2.5]
    gives[:] = [_Data({"premise": ["a"], "hypothesis": ["b"], "label": [-1]}, None)]
    assert read_hub_split(TASKS["ax"], "diagnostic").texts == [("a", "b")]
    assert [options["split"] for _, options in calls] == ["test", "validation", "test"]


def test_a_copy_with_other_columns_or_labels_is_refused(hub):
    _, gives = hub
    gives[:] = [_Data({"sentence1": ["a"], "sentence2": ["b"], "label": [0]}, ["no", "yes"])]
    with pytest.raises(TableError, match=r"other labels than .* Received: \['no', 'yes'\]"):
        read_hub_split(TASKS["rte"], "train")
    gives[:] = [_Data({"text": ["a"], "label": [0]}, ["entailment", "not_entailment"])]
    with pytest.raises(TableError, match="lacks sentence1, sentence2. Received: text, label"):
        read_hub_split(TASKS["rte"], "train")


def test_a_hub_out_of_reach_and_a_missing_library_say_what_to_do(hub, monkeypatch):
    _, gives = hub
    gives[:] = [ConnectionError("no route")]
    with pytest.raises(DownloadError, match="rte train could not be read from the Hub: no route. Try again"):
        read_hub_split(TASKS["rte"], "train")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPartError, match=r"pip install 'lbzoo\[glue\]'"):
        read_hub_split(TASKS["rte"], "train")


@pytest.mark.parametrize("name", [name for name in TASKS if name != "ax"])
def test_the_made_up_splits_have_no_row_in_common(tmp_path, name):
    made_glue(tmp_path, name)
    texts = [text for split in TASKS[name].rows for text in read_split(TASKS[name], tmp_path, split).texts]
    assert len(set(texts)) == len(texts)
