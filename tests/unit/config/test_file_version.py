"""Configuration files of earlier and later versions, over steps as a later jan-serve would have them."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.main import main
from jan_serve.config import load_settings
from jan_serve.config.file_version import migrate
from jan_serve.errors import SettingsError
from tests.support.file_modes import seen_modes

OLD = "# mine\ntcp_port = 8080  # the usual one\nn_ctx = 4096\n"
NEW = "# mine\nn_ctx = 4096\nport = 8080  # the usual one\nconfig_version = 2\n"


def rename_port(content: MutableMapping[str, Any]) -> None:
    """From 1 to 2: `tcp_port` became `port`."""
    if "tcp_port" in content:
        content["port"] = content.pop("tcp_port")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file, for a jan-serve that is one version further."""
    file = tmp_path / "config.toml"
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(file))
    monkeypatch.setattr("jan_serve.config.file_version.CONFIG_STEPS", {1: rename_port})
    return file


def test_an_earlier_file_counts_and_stays(path: Path) -> None:
    path.write_text(OLD)
    loaded = load_settings()
    assert (loaded.settings.port, loaded.settings.n_ctx) == (8080, 4096)
    assert any("`jan-serve config migrate`" in warning for warning in loaded.warnings)
    assert path.read_text() == OLD


def test_a_present_file_is_silent(path: Path) -> None:
    path.write_text(NEW)
    assert load_settings().warnings == ()
    assert load_settings().settings.port == 8080


def test_the_file_is_rewritten_when_asked_for(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(OLD)
    path.chmod(0o600)
    assert main(["config", "migrate"]) == 0
    assert path.read_text() == NEW
    backup = path.with_name("config.toml.v1")
    assert backup.read_text() == OLD
    assert [file.stat().st_mode & 0o777 for file in (path, backup)] == [0o600, 0o600]
    assert main(["config", "migrate"]) == 0
    assert "already has the current version" in capsys.readouterr().err
    assert load_settings().settings.port == 8080


def test_a_link_stays_one(path: Path, tmp_path: Path) -> None:
    behind = tmp_path / "dotfiles" / "jan.toml"
    behind.parent.mkdir()
    behind.write_text(OLD)
    path.symlink_to(behind)
    assert migrate(path) == behind.with_name("jan.toml.v1")
    assert path.is_symlink()
    assert behind.read_text() == NEW


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_nobody_else_reads_it_while_it_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(OLD)
    path.chmod(0o640)
    seen = seen_modes(monkeypatch)
    before = os.umask(0)
    try:
        migrate(path)
    finally:
        os.umask(before)
    assert seen == [0o600, 0o640] * 2, "while there is content, and under the name of the file"


def test_there_may_be_no_file(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path.unlink(missing_ok=True)
    monkeypatch.delenv("JAN_SERVE_CONFIG", raising=False)
    monkeypatch.setattr("jan_serve.config.settings_loader.default_config_file", lambda: path)
    assert main(["config", "migrate"]) == 0
    assert "There is no configuration file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [("config_version = 3\n", "written for a later jan-serve"), ("config_version = '2'\n", "a whole number")],
)
def test_a_file_that_is_not_known(path: Path, text: str, words: str) -> None:
    path.write_text(text)
    with pytest.raises(SettingsError, match=words):
        load_settings()
    with pytest.raises(SettingsError, match=words):
        migrate(path)
    assert path.read_text() == text


def test_this_jan_serve_takes_its_own_version(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("config_version = 1\nport = 5\n")
    loaded = load_settings(config_file=file)
    assert (loaded.settings.port, loaded.warnings) == (5, ())
