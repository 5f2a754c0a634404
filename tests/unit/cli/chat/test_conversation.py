"""Messages of a chat, its requests and its saved file."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.errors import CommandError


def test_a_request_contains_all_messages() -> None:
    chat = Conversation("m", system="Be brief.", parameters={"temperature": 0})
    chat.add("one?", "1")
    body = chat.request("two?")
    assert body["model"] == "m"
    assert body["temperature"] == 0
    assert [message["content"] for message in body["messages"]] == ["Be brief.", "one?", "1", "two?"]
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert len(chat.messages) == 2


def test_undo_removes_the_last_pair() -> None:
    chat = Conversation("m")
    assert chat.undo() is None
    chat.add("one?", "1")
    chat.add("two?", "2")
    assert chat.undo() == "two?"
    assert [message["content"] for message in chat.messages] == ["one?", "1"]
    chat.clear()
    assert chat.messages == []


def test_files_go_with_the_next_question_and_come_back_with_it() -> None:
    files: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": "data:a"}},
        {"type": "file", "file": {"filename": "b.pdf", "file_data": "data:b"}},
    ]
    chat = Conversation("m", files=files)
    parts = chat.request("what?")["messages"][-1]["content"]
    assert parts == [*files, {"type": "text", "text": "what?"}]
    chat.add("what?", "a cat")
    assert chat.files == []
    assert chat.request("sure?")["messages"][0]["content"] == parts
    assert chat.request("sure?")["messages"][-1]["content"] == "sure?"
    other = Conversation("m")
    other.restore(chat.to_json())
    assert other.messages == chat.messages
    assert other.undo() == "what?"
    assert other.files == files
    other.clear()
    assert other.files == []


def test_a_saved_chat_is_restored() -> None:
    chat = Conversation("m", system="é", parameters={"seed": 1})
    chat.add("one?", "1")
    other = Conversation("other")
    other.restore(chat.to_json())
    assert (other.model, other.system, other.parameters) == ("other", "é", {"seed": 1})
    assert other.messages == chat.messages


CALLED: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "5"},
]


def test_calls_of_tools_belong_to_their_question() -> None:
    chat = Conversation("m")
    chat.add("one?", "1")
    chat.add("two?", "2", CALLED)
    assert chat.request("three?", CALLED)["messages"][3:5] == CALLED
    assert chat.request("three?", CALLED)["messages"][-2:] == CALLED
    other = Conversation("m")
    other.restore(chat.to_json())
    assert other.messages == chat.messages
    assert other.undo() == "two?"
    assert other.messages == chat.messages[:2]


@pytest.mark.parametrize("wrong", [CALLED[:1], CALLED[1:], [*CALLED, *CALLED[1:], CALLED[0]]])
def test_calls_without_results_are_no_saved_chat(wrong: list[dict[str, Any]]) -> None:
    chat = Conversation("m")
    chat.add("one?", "1", wrong)
    with pytest.raises(CommandError, match="not a saved chat"):
        Conversation("m").restore(chat.to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"jan_serve_chat": 1}',
        '{"jan_serve_chat": 2, "system": null, "parameters": {}, "messages": []}',
        '{"jan_serve_chat": 1, "system": 1, "parameters": {}, "messages": []}',
        '{"jan_serve_chat": 1, "system": null, "parameters": {}, "messages": [{"role": "user", "content": "x"}]}',
        '{"jan_serve_chat": 1, "system": null, "parameters": {}, "messages": [1, 2]}',
        '{"jan_serve_chat": 1, "system": null, "parameters": {}, "messages":'
        ' [{"role": "user", "content": [{"type": "text"}]}, {"role": "assistant", "content": ""}]}',
        '{"jan_serve_chat": 1, "system": null, "parameters": {}, "messages":'
        ' [{"role": "user", "content": [1, {"type": "text", "text": ""}]}, {"role": "assistant", "content": ""}]}',
    ],
)
def test_a_file_that_is_not_a_saved_chat_changes_nothing(text: str) -> None:
    chat = Conversation("m")
    chat.add("one?", "1")
    before = chat.to_json()
    with pytest.raises(CommandError, match="not a saved chat"):
        chat.restore(text)
    assert chat.to_json() == before
