"""`jan-serve connect` and the facts that it reads from a server."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from jan_serve.cli.commands.connect import read_facts
from jan_serve.cli.errors import CommandError
from tests.support.servers.served_app import ServedApp
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


EMBED = {"id": "embed", "context_length": 512, "meta": {"pooling": "mean"}}
CHATS = [EMBED, {"id": "small", "context_length": 2048}, {"id": "large", "context_length": 8192}]


class Client:
    """A server that lists these models."""

    url = "http://127.0.0.1:1337"

    def __init__(self, cards: list[dict[str, Any]]) -> None:
        self._cards = cards

    def get(self, path: str) -> Any:
        assert path == "/v1/models"
        return {"data": self._cards}


def chosen(cards: list[dict[str, Any]], model: str | None, default: str | None) -> str:
    client: Any = Client(cards)
    return read_facts(client, model, default, needs_key=False).model.name


@pytest.mark.parametrize(
    ("model", "default", "name"),
    [
        (None, None, "small"),
        (None, "large", "large"),
        ("large", None, "large"),
        ("small", "large", "small"),
        (None, "embed", "small"),
        (None, "gone", "small"),
    ],
)
def test_the_named_model_then_the_default_then_the_first_that_can_chat(
    model: str | None, default: str | None, name: str
) -> None:
    assert chosen(CHATS, model, default) == name


@pytest.mark.parametrize("model", ["nope", "embed"])
def test_a_named_model_that_cannot_chat_is_an_error(model: str) -> None:
    with pytest.raises(CommandError, match=f"{model}: the server has no chat model with this name"):
        chosen(CHATS, model, "small")


@pytest.mark.parametrize("cards", [[], [EMBED]])
def test_a_server_without_a_chat_model_is_an_error(cards: list[dict[str, Any]]) -> None:
    with pytest.raises(CommandError, match="the server has no chat model"):
        chosen(cards, None, None)
