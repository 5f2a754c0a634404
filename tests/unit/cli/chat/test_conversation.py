"""Messages, parameters, formats and files of a chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.chat.conversation import PARAMETERS, Conversation, assignments, parameter, read_format
from jan_serve.cli.errors import CommandError
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest


def test_every_parameter_is_a_field_of_the_request() -> None:
    assert PARAMETERS.keys() <= CreateChatCompletionRequest.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("temperature", "0.2", ("temperature", 0.2)),
        ("top-k", "40", ("top_k", 40)),
        ("TOP_P", " 1 ", ("top_p", 1)),
        ("stop", '["a", "b"]', ("stop", ["a", "b"])),
        ("stop", "END", ("stop", "END")),
        ("seed", "null", ("seed", None)),
        ("enable_thinking", "off", ("enable_thinking", False)),
        ("enable_thinking", "true", ("enable_thinking", True)),
        ("reasoning_effort", "low", ("reasoning_effort", "low")),
    ],
)
def test_values(name: str, text: str, expected: tuple[str, Any]) -> None:
    assert parameter(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "message", "next_step"),
    [
        ("temprature", "1", "There is no parameter 'temprature'.", "Did you mean temperature?"),
        ("model", "1", "There is no parameter 'model'.", "top_p"),
        ("seed", " ", "seed needs a value", ""),
        ("temperature", "hot", "temperature takes a number, not 'hot': randomness", ""),
        ("temperature", "NaN", "temperature takes a number", ""),
        ("top_k", "on", "top_k takes a number", ""),
    ],
)
def test_invalid_parameters_are_rejected(name: str, text: str, message: str, next_step: str) -> None:
    with pytest.raises(CommandError) as raised:
        parameter(name, text)
    assert message in raised.value.message
    assert next_step in (raised.value.next_step or "")
    assert raised.value.status == 2


def test_assignments() -> None:
    assert assignments(["temperature=0", "stop=a=b", "temperature=1"]) == {"temperature": 1, "stop": "a=b"}
    with pytest.raises(CommandError, match="has no `=`"):
        assignments(["temperature"])


def test_formats(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    file = tmp_path / "person.json"
    file.write_text(json.dumps(schema))
    grammar = tmp_path / "yes.gbnf"
    grammar.write_text('root ::= "yes" | "no"')
    assert read_format("json").fields == {"response_format": {"type": "json_object"}}
    assert read_format(str(file)).fields == {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    }
    assert read_format(str(grammar)).fields == {"grammar": 'root ::= "yes" | "no"'}
    assert read_format("arithmetic").fields == {"grammar": "arithmetic"}


def test_invalid_formats_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    (tmp_path / "large.json").write_bytes(b" " * ((1 << 20) + 1))
    for name, words in (
        ("bad.json", "neither JSON nor GBNF"),
        ("binary.json", "not UTF-8"),
        ("large.json", "1048576 bytes"),
        ("absent.json", "There is no file"),
        ("absent/x", "There is no file"),
    ):
        with pytest.raises(CommandError, match=words):
            read_format(str(tmp_path / name))


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
