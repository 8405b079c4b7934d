"""`lbzoo list`, `info`, `download` and `verify`."""

from __future__ import annotations

import json
import shutil

from tests.conftest import one_error


def test_list(run):
    status, out, err = run("list", "mlstm-4096-*")
    assert (status, err) == (0, "") and out.splitlines()[1].startswith("mlstm-4096-amazon ")
    assert [entry["name"] for entry in json.loads(run("list", "mlstm-4096-*", "--json")[1])] == ["mlstm-4096-amazon"]
    status, out, err = run("list", "nonsense-*")
    assert (status, out) == (0, "") and err.startswith("lbzoo: note: ")


def test_info(run, probed):
    status, out, _ = run("info", "sentiment-neuron")
    assert status == 0 and "2388" in out and "untested here" in out
    found = json.loads(run("info", "mlstm-4096-amazon", "--json")[1])
    assert found["sentiment_unit"] == 2388 and found["card"] is None
    status, out, _ = run("info", probed)
    assert status == 0 and "description: random numbers" in out and "model.safetensors" in out
    assert json.loads(run("info", probed, "--json")[1])["config"]["units"] == 8
    assert "no checkpoint folder" in one_error(run("info", "./nowhere")[2])


def test_verify_names_the_changed_file(run, probed, tmp_path):
    copy = shutil.copytree(probed, tmp_path / "copy")
    with open(copy / "model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    status, out, err = run("verify", copy, probed)
    assert (status, err) == (1, "")
    assert f"{copy}: FAILED\n" in out and f"{probed}: ok\n" in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("  FAILED")] == [
        ["FAILED", "model.safetensors"]
    ]


def test_verify_goes_on_after_an_error(run, probed, tmp_path):
    status, out, err = run("verify", "nonsense", probed)
    assert status == 1 and "nonsense" in one_error(err)
    assert out.startswith("nonsense: FAILED\n") and f"{probed}: ok\n" in out


def test_download_and_verify_offline(run, tmp_path):
    for command in ("download", "verify"):
        status, _, err = run(command, "mlstm-4096-amazon", "--offline", "--cache", tmp_path)
        assert status == 1 and "offline" in one_error(err)


def test_verify_all_with_an_empty_cache(run, tmp_path):
    status, out, err = run("verify", "--all", "--offline", "--cache", tmp_path)
    assert status == 0 and "FAILED" not in out and (out or err.startswith("lbzoo: note: "))


def test_download_prints_the_folder(run, probed):
    assert run("download", probed) == (0, f"{probed}\n", "")
