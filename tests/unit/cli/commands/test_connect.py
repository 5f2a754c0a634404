"""connect --write, against fake engines."""

from __future__ import annotations

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.served_app import ServedApp
from tests.unit.cli.conftest import Run


def test_a_new_configuration_file_needs_no_restart(
    run: Run, server: ServedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "config.toml"
    monkeypatch.delenv("JAN_SERVE_CONFIG")
    monkeypatch.setattr("jan_serve.config.settings_loader.default_config_file", lambda: file)
    monkeypatch.setenv("JAN_SERVE_PORT", str(urlsplit(server.url).port))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    answer = run("connect", "claude", "--write", "--yes", "--model", "alpha")
    assert answer.status == 0, answer.err
    assert "opus" in tomllib.loads(file.read_text())["models"]["alpha"]["aliases"]
    assert "Restart" not in answer.err
