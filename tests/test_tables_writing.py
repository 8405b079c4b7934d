"""Tables out: round trips, columns, and files that appear whole or not at all."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbzoo.errors import TableError
from lbzoo.tables import Row, new_names, open_table, open_writer

cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def tables(draw):
    width = draw(st.integers(1, 4))
    return width, draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=8))


@given(tables(), st.sampled_from(["csv", "tsv", "jsonl", "csv.gz", "tsv.xz"]))
def test_round_trip(tmp_path_factory, table, suffix):
    width, rows = table
    columns = ["text", "b", "c", "d"][:width]
    path = tmp_path_factory.getbasetemp() / f"round.{suffix}"
    with open_writer(path, columns, ["label", "p"]) as writer:
        for i, row in enumerate(rows):
            writer.write(Row(i + 1, i + 2, row[0], list(zip(columns, row))), ["positive", 0.25])
    if not rows and suffix == "jsonl":
        assert path.read_bytes() == b""
        return
    with open_table(path) as found:
        back = list(found)
    assert found.columns == [*columns, "label", "p"]
    number = 0.25 if suffix == "jsonl" else "0.25"
    assert [[value for _, value in row.items] for row in back] == [[*row, "positive", number] for row in rows]
    assert [row.text for row in back] == [row[0] for row in rows]


@given(st.lists(cells, min_size=1, max_size=5))
def test_csv_is_what_the_csv_module_reads(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "module.csv"
    with open_writer(path, ["text"], []) as writer:
        for text in texts:
            writer.write(Row(1, 1, text, [("text", text)]), [])
    if "\0" not in "".join(texts):  # which csv refuses before Python 3.11
        with open(path, encoding="utf-8", newline="") as file:
            assert list(csv.reader(file)) == [["text"], *([text] for text in texts)]


def write_one(path, items, columns=None, **options):
    columns = [name for name, _ in items] if columns is None else columns
    with open_writer(path, columns, ["label"], **options) as writer:
        writer.write(Row(7, 9, "", items), ["x"])
    return path.read_text(encoding="utf-8")


def test_values_of_jsonl_in_csv(tmp_path):
    items = [("a", None), ("b", True), ("c", 1.5), ("d", {"é": [1]})]
    assert write_one(tmp_path / "o.csv", items) == 'a,b,c,d,label\n,true,1.5,"{""é"": [1]}",x\n'
    assert json.loads(write_one(tmp_path / "o.jsonl", items)) == {**dict(items), "label": "x"}


def test_rows_with_other_columns(tmp_path):
    assert write_one(tmp_path / "o.csv", [("b", "2")], ["a", "b"]) == "a,b,label\n,2,x\n"
    with pytest.raises(TableError, match=r"row 7 \(line 9\).*'c'.*jsonl"):
        write_one(tmp_path / "p.csv", [("c", "3")], ["a", "b"])
    with pytest.raises(TableError, match=r"row 7 \(line 9\).*'label'"):
        write_one(tmp_path / "p.jsonl", [("label", "3")], ["a"])
    with pytest.raises(TableError, match="two columns of one name"):
        write_one(tmp_path / "p.jsonl", [("a", "3"), ("a", "4")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv"]


def test_lone_surrogates_can_be_written(tmp_path):
    assert json.loads(write_one(tmp_path / "o.jsonl", [("a", "x\ud800y")]))["a"] == "x\ud800y"
    assert write_one(tmp_path / "o.csv", [("a", "x\ud800y")]) == "a,label\nx\ufffdy,x\n"


def test_new_names():
    assert new_names(["text"], ["label", "probability"]) == ["label", "probability"]
    assert new_names(["text", "label"], ["label", "probability"]) == ["lbzoo_label", "probability"]
    assert new_names(["label", "lbzoo_label"], ["label"]) == ["lbzoo_label_2"]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "o.csv"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(KeyError), open_writer(path, ["a"], []) as writer:
        writer.write(Row(1, 1, "", [("a", "1")]), [])
        raise KeyError
    assert path.read_text() == "old"
    with open_writer(path, ["a"], []):
        pass
    assert path.read_text() == "a\n" and path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["o.csv"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real.csv")
    with open_writer(link, ["a"], []):
        pass
    assert link.is_symlink() and (tmp_path / "real.csv").read_text() == "a\n"


def test_where_output_cannot_go(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder to write into"), open_writer(tmp_path / "no" / "o.csv", [], []):
        pass
    with pytest.raises(IsADirectoryError), open_writer(tmp_path, [], [], format="csv"):
        pass
    with pytest.raises(TableError, match="--output-format"), open_writer(tmp_path / "o.xlsx", [], []):
        pass
