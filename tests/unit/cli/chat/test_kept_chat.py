"""Chats of the terminal among those of the server, which other pages change meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.kept_chat import KeptChat, kept_chat
from jan_serve.cli.chat.slash_commands import ChatSession
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError
from tests.unit.cli.chat.support import chatted, stored


def message(name: str, role: str, text: str) -> dict[str, Any]:
    return {"id": name, "role": role, "text": text}


@pytest.fixture
def kept(session: ChatSession, client: ServerClient) -> KeptChat:
    session.kept = kept_chat(session.client, None, session.conversation)
    assert session.kept is not None
    return session.kept


def test_a_chat_of_the_terminal_is_kept_with_what_was_taken_back(
    session: ChatSession, kept: KeptChat, client: ServerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    chatted(session, capsys, "!say one", "!say two", "/undo", "!say three")
    assert stored(client) == ["!say one", "one", "!say three{!say two one}", "one"]
    chatted(session, capsys, "/clear", "!say new")
    assert (stored(client), len(stored(client, 1))) == (["!say new", "new"], 4)


def test_what_another_page_wrote_meanwhile_stays(
    session: ChatSession, kept: KeptChat, client: ServerClient, capsys: pytest.CaptureFixture[str]
) -> None:
    chatted(session, capsys, "!say one")
    chat = client.get(f"/extras/chats/{kept.id}")
    theirs = [*chat["messages"], message("p", "user", "from the page"), message("r", "assistant", "yes")]
    client.put(f"/extras/chats/{kept.id}", {"version": 1, "messages": theirs})
    chatted(session, capsys, "!say two")
    assert stored(client) == ["!say one", "one", "!say two{from the page yes}", "one"]
    chatted(session, capsys, "!say three")
    assert stored(client)[-2:] == ["!say three", "one"]
    client.delete(f"/extras/chats/{kept.id}")
    chatted(session, capsys, "!say four")
    assert stored(client)[-2:] == ["!say four", "one"] and len(stored(client)) == 8


def test_a_chat_goes_on_where_the_server_does_not_take_it(
    session: ChatSession,
    kept: KeptChat,
    client: ServerClient,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(self: ServerClient, path: str, body: object) -> dict[str, Any]:
        raise CommandError("The chat store is full.")

    with monkeypatch.context() as patch:
        patch.setattr(ServerClient, "put", full)
        out, err = chatted(session, capsys, "!say one")
        assert "one" in out and "The chat store is full." in err
    chatted(session, capsys, "!say two")
    assert stored(client) == ["!say one", "one", "!say two", "one"]


def test_pictures_and_calls_come_back_as_they_went(client: ServerClient) -> None:
    conversation = Conversation(
        "alpha", files=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    steps: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    conversation.add("what?", "It is 42.", steps)
    kept = KeptChat(client)
    kept.save(conversation)
    again = Conversation("alpha")
    found = kept_chat(client, kept.id, again)
    assert again.messages == conversation.messages
    assert found is not None and found.version == 1
