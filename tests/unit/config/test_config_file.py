"""The configuration file: its reading, its lines and its version."""

from __future__ import annotations

import os
import tomllib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.main import main
from jan_serve.config import (
    load_settings,
)
from jan_serve.config.config_file import KeyPath, TomlLines, migrate
from jan_serve.errors import SettingsError
from tests.support.file_modes import seen_modes


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


TEXT = '''\
# a comment = 1
port = 1
"quoted key" = 2
text = """
inner = 3
[not.a.table]
"""
list = [
    1,  # one
    2,
]
dotted.key.here = true

[models."a/b"]
n_ctx = 5
inline = { x = 1, "y" = { z = 2 } }

[models."a/b".sampling]
top_k = 1

[[models."a/b".lora]]
name = "one"

[[models."a/b".lora]]
name = "two"
[models."a/b".lora.more]
deep = 1

[models]
last.n_ctx = 6
'''

LINES: list[tuple[KeyPath, int]] = [
    (("port",), 2),
    (("quoted key",), 3),
    (("text",), 4),
    (("list",), 8),
    (("list", 1), 8),
    (("dotted",), 12),
    (("dotted", "key", "here"), 12),
    (("models",), 14),
    (("models", "a/b"), 14),
    (("models", "a/b", "n_ctx"), 15),
    (("models", "a/b", "n_ctx", 3, "deeper"), 15),
    (("models", "a/b", "inline", "y", "z"), 16),
    (("models", "a/b", "sampling"), 18),
    (("models", "a/b", "sampling", "top_k"), 19),
    (("models", "a/b", "absent"), 14),
    (("models", "a/b", "lora"), 21),
    (("models", "a/b", "lora", 0, "name"), 22),
    (("models", "a/b", "lora", 1), 24),
    (("models", "a/b", "lora", 1, "name"), 25),
    (("models", "a/b", "lora", 1, "more", "deep"), 27),
    (("models", "last", "n_ctx"), 30),
    (("inner",), 1),
    (("not",), 1),
    ((), 1),
]


@pytest.mark.parametrize(("path", "line"), LINES)
def test_lines(path: KeyPath, line: int) -> None:
    tomllib.loads(TEXT)
    assert TomlLines(TEXT).line_of(path) == line


def test_no_text() -> None:
    assert TomlLines("").line_of(("a",)) == 1


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
    monkeypatch.setattr("jan_serve.config.config_file.CONFIG_STEPS", {1: rename_port})
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
