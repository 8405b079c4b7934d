"""`lbzoo doctor`: what it finds, and what it keeps to itself."""

from __future__ import annotations

import json


def test_doctor(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LBZOO_OFFLINE", "1")
    status, out, _ = run("doctor", "--json", "--full", "--cache", tmp_path / "cache")
    found = json.loads(out)
    assert status == 0 and found["problems"] == []
    assert found["package"]["tensorflow"].startswith("2.15.")
    assert "can be written" in found["cache"]["ours"] and str(tmp_path) in found["cache"]["ours"]
    assert "LBZOO_OFFLINE" in found["network"] and found["variable"]["LBZOO_OFFLINE"] == "1"
    assert any("CPU" in device for device in found["devices"])
    status, out, _ = run("doctor", "--cache", tmp_path / "cache")
    assert status == 0 and "tensorflow" in out and "--full" in out


def test_doctor_names_what_is_missing(run, monkeypatch):
    monkeypatch.setattr("lbzoo.doctor.PACKAGES", (("no-such-package", "no_such_package", True),))
    status, out, _ = run("doctor")
    assert status == 1 and "no-such-package is missing" in out


def test_doctor_shows_no_password(run, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "https://me:secret@example.org/hub")
    status, out, _ = run("doctor")
    assert "secret" not in out and "https://example.org/hub" in out
