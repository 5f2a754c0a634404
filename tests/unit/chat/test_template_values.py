"""Messages and tools as the plain values that a template of some traits reads."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.chat.template_traits import TemplateTraits
from jan_serve.chat.template_values import template_messages, template_tool_choice, template_tools
from jan_serve.core.messages import FunctionCall, ImagePart, Message, TextPart, Tool, ToolCall, ToolChoice
from jan_serve.errors import UnsupportedContent

USUAL = TemplateTraits()


def value_of(message: Message, traits: TemplateTraits = USUAL) -> dict[str, Any]:
    (value,) = template_messages((message,), traits, "thinking")
    return value


def call(arguments: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall("call_1", FunctionCall("add", arguments)),))


MESSAGES: dict[str, tuple[Message, TemplateTraits, dict[str, Any]]] = {
    "text": (Message(role="user", content="Hi"), USUAL, {"role": "user", "content": "Hi"}),
    "parts are joined as they are": (
        Message(role="user", content=(TextPart("a "), TextPart("b"))),
        USUAL,
        {"role": "user", "content": "a b"},
    ),
    "no content": (Message(role="assistant"), USUAL, {"role": "assistant", "content": ""}),
    "a list of parts": (
        Message(role="user", content="Hi"),
        TemplateTraits(list_content=True),
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ),
    "no text is an empty part": (
        Message(role="user", content=""),
        TemplateTraits(list_content=True),
        {"role": "user", "content": [{"type": "text", "text": ""}]},
    ),
    "null without calls stays text": (
        Message(role="assistant"),
        TemplateTraits(null_content=True),
        {"role": "assistant", "content": ""},
    ),
    "a thought": (
        Message(role="assistant", content="4", reasoning_content="2+2"),
        USUAL,
        {"role": "assistant", "content": "4", "thinking": "2+2"},
    ),
    "a result": (
        Message(role="tool", content="4", name="add", tool_call_id="call_1"),
        USUAL,
        {"role": "tool", "content": "4", "name": "add", "tool_call_id": "call_1"},
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message(name: str) -> None:
    message, traits, expected = MESSAGES[name]
    assert value_of(message, traits) == expected


@pytest.mark.parametrize(
    ("arguments", "expected", "text"),
    [
        ('{"a":1}', {"a": 1}, '{"a":1}'),
        ("", {}, "{}"),
        ("[1]", {}, "{}"),
        ('{"a": 1, "b', {"a": 1}, '{"a": 1}'),
    ],
    ids=["object", "none", "array", "cut"],
)
def test_arguments_are_an_object_or_its_text(arguments: str, expected: Any, text: str) -> None:
    function = value_of(call(arguments))["tool_calls"][0]["function"]
    assert function == {"name": "add", "arguments": expected}
    as_text = value_of(call(arguments), TemplateTraits(object_arguments=False))["tool_calls"][0]
    assert as_text == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": text},
    }


def test_a_turn_with_calls_has_null_content_where_the_template_wants_it() -> None:
    assert value_of(call("{}"), TemplateTraits(null_content=True))["content"] is None


def test_an_image_is_rejected_and_never_fetched() -> None:
    parts = (TextPart("look"), ImagePart("file:///etc/passwd"))
    messages = (Message(role="user", content="Hi"), Message(role="user", content=parts))
    with pytest.raises(UnsupportedContent, match=r"messages\[1\]") as caught:
        template_messages(messages, USUAL, "thinking")
    assert caught.value.param == "messages"


def test_plain_tools_have_what_templates_look_for() -> None:
    parameters: dict[str, Any] = {
        "properties": {"a": {"type": ["NULL", "INTEGER"]}, "b": True},
        "required": None,
    }
    tools = (Tool(name="add", parameters=parameters), Tool(name="now", parameters={}, strict=True))
    assert template_tools(tools) == [
        {"type": "function", "function": {"name": "add", "parameters": parameters}},
        {"type": "function", "function": {"name": "now", "parameters": {}, "strict": True}},
    ]
    plain = template_tools(tools, plain=True)
    assert plain is not None
    assert plain[0]["function"] == {
        "name": "add",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": ""}, "b": {"description": ""}},
            "additionalProperties": {},
        },
    }
    assert plain[1]["function"]["parameters"]["properties"] == {}
    assert parameters["required"] is None, "the request's tool is not changed"
    assert template_tools(()) is None


def test_a_tool_choice_is_a_word_or_an_object() -> None:
    assert template_tool_choice(ToolChoice("required")) == "required"
    assert template_tool_choice(ToolChoice("named", "add")) == {
        "type": "function",
        "function": {"name": "add"},
    }
