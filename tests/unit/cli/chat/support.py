"""Chats with scripted input."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jan_serve.cli.chat.session import chat
from jan_serve.cli.chat.slash_commands import ChatSession
from jan_serve.cli.output import Output

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
    session.output = Output()
    capsys.readouterr()
    chat(session, typed(*inputs))
    captured = capsys.readouterr()
    return captured.out, captured.err
