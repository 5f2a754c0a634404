"""Reading the configuration file: mistakes have their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.config import (
    load_settings,
)
from jan_serve.errors import SettingsError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = = 1", r"config\.toml:1: Invalid value"),
        ("prot = 1", r"config\.toml:1: there is no setting 'prot'; did you mean 'port'"),
        ("prot = 1\nhots = 2", r"config\.toml:2: there is no setting 'hots'; did you mean 'host'"),
        ("\n[server]\nport = 1", r"config\.toml:2: there is no setting 'server'"),
        ('a."b" = 1', r"config\.toml:1: there is no setting 'a'"),
        ("port = true\nhost = 3", r"config\.toml:2: host must be a valid string"),
        ("# x\n'api_keys' = ['a b']", r"config\.toml:2: api_keys"),
        ("api_keys = 3", r"config\.toml:1: api_keys"),
        ("port = [1]", r"config\.toml:1: port must be a valid integer"),
    ],
)
def test_mistakes_in_the_file_have_their_line(config_file: Path, text: str, message: str) -> None:
    config_file.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_settings()


def test_files_that_cannot_be_read(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file.write_bytes(b"port = 1 # \xff")
    with pytest.raises(SettingsError, match="not UTF-8 at byte 11"):
        load_settings()
    with pytest.raises(SettingsError, match="there is no configuration file"):
        load_settings(config_file=tmp_path / "absent.toml")
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(config_file=tmp_path)
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(tmp_path / "absent.toml"))
    with pytest.raises(SettingsError, match="there is no configuration file"):
        load_settings()


def test_the_default_file_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jan_serve.config.settings_loader.default_config_file", lambda: tmp_path / "absent.toml"
    )
    loaded = load_settings()
    assert not loaded.config_file_read
    assert loaded.settings.port == 1337
