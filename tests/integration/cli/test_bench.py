"""`jan-serve bench` with one client, and without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models


def test_one_client_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path / "data"))
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model) as served:
        assert main(["bench", "--clients", "1", "--url", served.url(), "--json"]) == 0
    (here,) = json.loads(capsys.readouterr().out).values()
    assert here["model"] == "jan-tiny"
    assert list(here["writes"]) == ["1"]
    assert here["writes"]["1"] > 0
    assert all(first["seconds"] > 0 for first in here["first"])


def test_a_server_that_counts_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path))
    assert main(["bench", "--url", "http://127.0.0.1:9"]) != 0
    assert "127.0.0.1:9" in capsys.readouterr().err
