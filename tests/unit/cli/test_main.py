"""The command line: the selected command, its output and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve import __version__
from jan_serve.cli.main import build_app, main, with_default_command
from jan_serve.cli.registry import COMMANDS
from jan_serve.config import setting_options
from tests.unit.store.gguf_builder import GgufBytes, uint_key


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration for the test. Returns its models folder."""
    models = tmp_path / "models"
    models.mkdir()
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "."\n')
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))
    monkeypatch.setattr("jan_serve.wiring.parts.builtin_model", lambda: None)
    return models


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], ["serve"]),
        (["--port", "1"], ["serve", "--port", "1"]),
        (["--model", "x"], ["serve", "--model", "x"]),
        (["serve", "--port", "1"], ["serve", "--port", "1"]),
        (["doctor"], ["doctor"]),
        (["--version"], ["--version"]),
        (["--help"], ["--help"]),
        (["-h"], ["-h"]),
        (["nonsense"], ["nonsense"]),
    ],
)
def test_serve_is_the_default_command(words: list[str], meant: list[str]) -> None:
    assert with_default_command(words) == meant


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--url", "http://x", "run"], 2, "jan-serve run --url …"),
        (["--json", "service", "status"], 2, "jan-serve service --json …"),
        (["--url=http://x", "ps"], 2, "jan-serve ps --url=http://x …"),
        (["--nonsense", "1"], 2, "No such option: --nonsense"),
        (["--model", "run", "--nonsense"], 2, "No such option: --nonsense"),
        (["--no-auth", "run"], 2, "unexpected extra argument"),
    ],
)
def test_an_option_before_the_command(
    words: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    assert says in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jan-serve {__version__}\n"


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    for option in setting_options():
        assert option.flag.split("/")[0] in text
    assert "Default: 1337." in text


@pytest.mark.parametrize(
    "words", [["nonsense"], ["ls", "--nonsense"], ["serve", "--port"], ["config", "nonsense"]]
)
def test_wrong_use_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_wrong_settings_are_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: --port: port must be a valid integer")
    assert "jan-serve config" in captured.err


def test_config_shows_values_and_origins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAN_SERVE_PORT", "4242")
    monkeypatch.setenv("JAN_SERVE_API_KEYS", "a-secret")
    assert main(["config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config_file"] == str(tmp_path / "config.toml")
    assert shown["settings"]["port"] == {"value": "4242", "origin": "JAN_SERVE_PORT"}
    assert shown["settings"]["data_dir"]["origin"] == f"{tmp_path / 'config.toml'}:1"
    assert main(["config"]) == 0
    captured = capsys.readouterr()
    assert "a-secret" not in captured.out + captured.err
    rows = [line.split() for line in captured.out.splitlines()]
    assert ["port", "4242", "JAN_SERVE_PORT"] in rows


def test_config_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["config", "check"]) == 0
    assert "valid" in capsys.readouterr().err
    other = tmp_path / "other.toml"
    other.write_text("port = 'x'\n")
    for words in (["config", "check", "--config", str(other)], ["config", "--config", str(other), "check"]):
        assert main(words) == 2
        assert f"{other}:1: port" in capsys.readouterr().err


def test_ls(capsys: pytest.CaptureFixture[str], own_folders: Path) -> None:
    good = GgufBytes(keys=[uint_key("llama.context_length", 2048)]).build()
    (own_folders / "good.gguf").write_bytes(good)
    (own_folders / "bad\x1b[31m.gguf").write_bytes(b"nonsense")
    assert main(["ls", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    by_name = {row["name"]: row for row in shown["models"]}
    assert by_name["good"]["n_ctx_train"] == 2048
    assert by_name["good"]["architecture"] == "llama"
    assert by_name["good"]["size_bytes"] == len(good)
    assert "cannot be served" in by_name["bad\x1b[31m"]["note"]
    assert main(["ls"]) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    assert "bad\\x1b[31m" in captured.out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert (f" {name} " in text) == (name != "own-server"), name
    assert main(["lss"]) == 2
    assert main(["config", "--help"]) == 0


def test_every_command_has_a_help_text() -> None:
    app = build_app()
    names = [command.name or "" for command in app.registered_commands]
    assert {"serve", "ls", "doctor"} <= set(names)
    assert all(
        command.callback is not None and command.callback.__doc__ for command in app.registered_commands
    )


def test_names_from_the_configuration(own_folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = own_folders
    for name in ("one", "two"):
        (folder / f"{name}.gguf").write_bytes(GgufBytes().build())
    (folder.parent / "sql.gguf").write_bytes(b"GGUF")
    (folder.parent / "config.toml").write_text(
        'data_dir = "."\n\n[models.one]\naliases = ["short"]\n'
        'lora = [{ name = "sql", file = "sql.gguf" }]\n[models.nil]\n'
    )
    assert main(["config", "check"]) == 0
    assert "config.toml:6: no local model is named 'nil'" in capsys.readouterr().err
    assert main(["ls"]) == 0
    assert "also short; with :sql" in capsys.readouterr().out
    assert main(["show", "short", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["aliases"], shown["adapters"]) == ("one", ["short"], ["sql"])
    assert main(["config", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert rows["models.one.aliases"]["value"] == "short"
    assert main(["rm", "--yes", "short"]) == 0
    assert not (folder / "one.gguf").exists()
