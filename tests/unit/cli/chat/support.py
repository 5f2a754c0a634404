"""Chats with scripted input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.cli.chat.session import chat
from jan_serve.cli.chat.slash_commands import ChatSession
from jan_serve.cli.client.server_client import ServerClient

Keys = str | type[BaseException]


def typed(*inputs: Keys) -> Callable[[], str]:
    """Reads these inputs or raises the exceptions of keys; Ctrl-D at the end."""
    remaining = list(inputs)

    def read() -> str:
        key = remaining.pop(0) if remaining else EOFError
        if isinstance(key, str):
            return key
        raise key

    return read


def chatted(session: ChatSession, capsys: pytest.CaptureFixture[str], *inputs: Keys) -> tuple[str, str]:
    """Run a chat. Returns its standard output and standard error."""
    capsys.readouterr()
    chat(session, typed(*inputs))
    captured = capsys.readouterr()
    return captured.out, captured.err


def stored(client: ServerClient, at: int = 0) -> list[str]:
    """The texts of a chat, the latest first, with those of its versions in brackets."""

    def shown(line: list[dict[str, Any]]) -> list[str]:
        return [
            each["text"] + "".join(f"{{{' '.join(shown(tail))}}}" for tail in each.get("versions", ()))
            for each in line
        ]

    chat = client.get("/extras/chats")["data"][at]
    return shown(client.get(f"/extras/chats/{chat['id']}")["messages"])
