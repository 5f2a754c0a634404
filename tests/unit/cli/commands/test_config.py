"""config: values, their sources and mistakes; the names that it gives to models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from tests.unit.store.gguf_builder import GgufBytes

pytestmark = pytest.mark.usefixtures("own_folders")


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


def test_a_model_that_is_not_installed_is_warned_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_folders: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "."\nmodel = "absent-model"\n')
    assert main(["config", "check"]) == 0
    err = capsys.readouterr().err
    assert f"warning: {config}:2: model: `absent-model` is not installed" in err
    assert "jan-serve pull" in err
    (own_folders / "absent-model.gguf").write_bytes(GgufBytes().build())
    assert main(["config", "check"]) == 0
    assert "warning" not in capsys.readouterr().err
