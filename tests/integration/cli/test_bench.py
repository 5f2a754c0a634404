"""`jan-serve bench` and `certify`: they measure a real model, and keep the result beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models


def test_it_measures_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path / "data"))
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model) as served:
        url = served.url()
        assert main(["bench", "--clients", "2", "--url", url, "--json"]) == 0
        (here,) = json.loads(capsys.readouterr().out).values()
        assert here["model"] == "jan-tiny"
        assert [900 < first["tokens"] < 1100 for first in here["first"]] == [True]
        assert all(first["seconds"] > 0 for first in here["first"])
        assert sorted(here["writes"]) == ["1", "2"]
        assert min(here["writes"].values()) > 0
        assert here["memory"] > 0
        assert here["bandwidth_share"] > 0
        assert main(["bench", "--clients", "2", "--url", url, "--against", url]) == 0
        printed = capsys.readouterr().out
    assert url in printed
    assert "2 clients" in printed
    assert printed.count("tokens/s") == 6


def test_a_server_that_counts_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path))
    assert main(["bench", "--url", "http://127.0.0.1:9"]) != 0
    assert "127.0.0.1:9" in capsys.readouterr().err


def test_a_certificate_stays_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The built-in model fills any schema; its context is too short for an agent."""
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JAN_SERVE_MODELS_DIR", str(tmp_path / "models"))
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model) as served:
        assert main(["certify", "jan-tiny", "--url", served.url(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {mark["task"]: mark["right"] for mark in found["marks"]}["schema"] == 4
    assert found["verdicts"]["structured extraction"] == "yes"
    assert found["verdicts"]["claude"].startswith("no: its context")
    assert main(["show", "jan-tiny", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["enough_for"]
    assert shown == [f"{use}: {verdict}" for use, verdict in found["verdicts"].items()]
