"""Which model other programs are set up with."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.cli.client.server_facts import read_facts
from jan_serve.cli.errors import CommandError

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
