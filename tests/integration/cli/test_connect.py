"""`jan-serve connect` against a running server: shows and writes settings, and rejects wrong use."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jan_serve.cli.main import main
from tests.integration.cli.file_modes import seen_modes
from tests.support.clients.raw_http import post
from tests.support.gguf.models import model_folder, tiny_llama
from tests.support.ports import held_port
from tests.support.servers.served import serving

__all__ = ["model_folder", "tiny_llama"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the folders of programs are looked for as on Linux"),
]


@pytest.fixture(scope="module")
def url(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A server with one model."""
    with serving(tmp_path_factory.mktemp("connect"), "--port", "0", "--model", str(tiny_llama)) as server:
        yield server.url()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    return tmp_path


def test_the_table_of_programs(url: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "--url", url]) == 0
    captured = capsys.readouterr()
    for name in (
        "continue",
        "cline",
        "zed",
        "vscode",
        "jetbrains",
        "opencode",
        "codex",
        "claude",
        "aider",
        "open-webui",
    ):
        assert f"\n {name} " in captured.out or f"\n{name} " in captured.out
    assert "tiny-llama" in captured.err


def test_settings_are_shown_as_data(url: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "opencode", "--url", url]) == 0
    captured = capsys.readouterr()
    shown: dict[str, Any] = json.loads(captured.out)
    assert shown["provider"]["jan-serve"]["options"] == {
        "baseURL": f"{url}/v1",
        "headers": {"x-jan-serve-stop-loops": "end"},
    }
    assert str(home / ".config" / "opencode" / "opencode.json") in captured.err
    assert "opencode needs about 32768" in captured.err
    assert list(home.iterdir()) == []


def test_a_new_file_is_private(url: str, home: Path) -> None:
    """It may hold the key."""
    before = os.umask(0)
    try:
        assert main(["connect", "opencode", "--write", "--yes", "--url", url]) == 0
    finally:
        os.umask(before)
    path = home / ".config" / "opencode" / "opencode.json"
    assert path.stat().st_mode & 0o777 == 0o600


def test_written_once(
    url: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    target = home / "dotfiles.json"
    target.write_bytes(b'// mine\r\n{\r\n  "theme": "One", // dark\r\n}\r\n')
    target.chmod(0o600)
    path.symlink_to(target)

    assert main(["connect", "zed", "--write", "--url", url]) == 2
    assert "was not written" in capsys.readouterr().err
    assert b"jan-serve" not in target.read_bytes()

    seen = seen_modes(monkeypatch)
    assert main(["connect", "zed", "--write", "--yes", "--url", url]) == 0
    assert seen == [0o600, 0o600], "other programs keep keys there"
    captured = capsys.readouterr()
    assert '+      "jan-serve": {' in captured.out
    content = target.read_bytes()
    assert content.startswith(b'// mine\r\n{\r\n  "theme": "One", // dark\r\n')
    assert b"\n" not in content.replace(b"\r\n", b"")
    assert path.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600

    assert main(["connect", "zed", "--write", "--yes", "--url", url]) == 0
    assert "already has these settings" in capsys.readouterr().err
    assert target.read_bytes() == content


def test_a_file_that_is_not_there_yet(url: str, home: Path) -> None:
    assert main(["connect", "continue", "--write", "--yes", "--url", url]) == 0
    content = yaml.safe_load((home / ".continue" / "config.yaml").read_text())
    assert content["models"][0]["model"] == "tiny-llama"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["emacs"], 2, "unknown program"),
        (["vscod"], 2, "Did you mean vscode?"),
        (["jetbrains", "--write", "--yes"], 2, "cannot write the settings of"),
        (["zed", "--model", "absent"], 2, "no chat model with this name"),
    ],
)
def test_wrong_use_is_rejected(
    words: list[str], status: int, message: str, url: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connect", *words, "--url", url]) == status
    assert message in capsys.readouterr().err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("content", [b"{ this is no JSON", b"\xff\xfe", b"[1]"])
def test_an_invalid_file_stays_unchanged(
    content: bytes, url: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert main(["connect", "opencode", "--write", "--yes", "--url", url]) == 1
    assert "is unchanged" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_without_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held_port() as port:
        assert main(["connect", "zed", "--url", f"http://127.0.0.1:{port}"]) == 3
    assert "no server answers" in capsys.readouterr().err


def test_the_route_for_codex_exists(url: str, home: Path) -> None:
    assert main(["connect", "codex", "--write", "--yes", "--url", url]) == 0
    (path,) = (home / ".codex").iterdir()
    profile = tomllib.loads(path.read_text())
    provider = profile["model_providers"][profile["model_provider"]]
    body = {"model": profile["model"], "input": "Hello", "max_output_tokens": 4}
    # Codex sends requests to this address for its wire_api.
    base, wire_api = provider["base_url"], provider["wire_api"]
    assert base == f"{url}/v1"
    answer = post(url, f"/v1/{wire_api}", body)
    assert (answer.status, answer.json()["object"]) == (200, "response")


def test_claudes_names_become_aliases_of_the_model(
    tiny_llama: Path, home: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("aliases")
    config = folder / "config.toml"
    body = {"model": "claude-opus-4-8", "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}
    with held_port() as port, contextlib.ExitStack() as stack:
        config.write_text(f'data_dir = "data"\nport = {port}\nmodels_dir = "{tiny_llama.parent}"\n')
        server = stack.enter_context(serving(folder))
        url = server.url()
        refused = post(url, "/v1/messages", body)
        assert refused.status == 404
        assert "jan-serve connect claude --write" in refused.json()["error"]["message"]
        assert (
            main(["connect", "claude", "--model", "tiny-llama", "--write", "--yes", "--config", str(config)])
            == 0
        )
        answer = post(url, "/v1/messages", body)
        assert (answer.status, answer.json()["model"]) == (200, "claude-opus-4-8")
    written = json.loads((home / ".claude" / "jan-serve.settings.json").read_text())
    assert written["env"]["ANTHROPIC_BASE_URL"] == url
    assert tomllib.loads(config.read_text())["models"]["tiny-llama"]["aliases"] == [
        "opus",
        "sonnet",
        "haiku",
        "claude",
    ]


def test_the_configuration_of_another_machine_is_not_written(
    url: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connect", "claude", "--write", "--yes", "--url", url]) == 0
    assert "add the aliases opus, sonnet, haiku, claude to tiny-llama there" in capsys.readouterr().err
