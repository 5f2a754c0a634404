"""The configuration file: its reading, its lines and its version."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from jan_serve.config import load_settings
from jan_serve.config.config_file import KeyPath, TomlLines
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


@pytest.mark.parametrize(
    ("text", "words"),
    [("config_version = 3\n", "written for a later jan-serve"), ("config_version = '2'\n", "a whole number")],
)
def test_a_file_that_is_not_known(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=words):
        load_settings(config_file=path)


def test_this_jan_serve_takes_its_own_version(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("config_version = 1\nport = 5\n")
    loaded = load_settings(config_file=file)
    assert (loaded.settings.port, loaded.warnings) == (5, ())
