"""These tests read instructions, calls and results as text, and calls as the layouts write them."""

from __future__ import annotations

import pytest

from jan_serve.chat.call_layout import (
    ArgumentSyntax,
    CallLayout,
    GemmaArguments,
    JsonArguments,
    NestedTagArguments,
    Parts,
    PythonArguments,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.marked_json import GENERIC
from jan_serve.chat.formats.python_calls import LLAMA3
from jan_serve.chat.tools_as_text import tool_instructions, with_tools_as_text, write_calls
from jan_serve.core.messages import FunctionCall, ImagePart, Message, TextPart, Tool, ToolCall
from tests.unit.chat.formats.answers import TOOLS, WEATHER, call, parse

USER = Message(role="user", content="Q")
ASKED = Message(role="assistant", content="Ok.", tool_calls=(call("get_weather", {"city": "Oslo"}),))
RESULTS = (
    Message(role="tool", content="4", tool_call_id="a"),
    Message(role="tool", content=(TextPart("5"),), tool_call_id="b"),
)


def test_instructions_name_every_tool_and_its_schema() -> None:
    text = tool_instructions(TOOLS, GENERIC)
    assert '{"name": "get_weather", "description": "The weather of a city", "parameters": {"type"' in text
    assert all(f'"name": "{tool.name}"' in text for tool in TOOLS)


@pytest.mark.parametrize("chat_format", FORMATS, ids=lambda chat_format: chat_format.name)
def test_the_example_in_the_instructions_is_a_call(chat_format: ChatFormat) -> None:
    text = tool_instructions([WEATHER], chat_format)
    example = text[text.index("in place:\n\n") + 11 : text.rindex("\n\n")]
    calls = parse(chat_format, [example], tools=[Tool(name="function_name")]).values()
    assert calls == [("function_name", {"argument_name": "value"})]


def test_instructions_allow_several_calls_only_if_the_format_does() -> None:
    assert "Several calls" in tool_instructions(TOOLS, GENERIC)
    assert "one call at a time" in tool_instructions(TOOLS, LLAMA3)


def test_a_system_message_is_added() -> None:
    messages = with_tools_as_text([USER], TOOLS, GENERIC, calls_too=True)
    assert [message.role for message in messages] == ["system", "user"]
    assert messages[0].content == tool_instructions(TOOLS, GENERIC)


def test_instructions_follow_the_system_message() -> None:
    system = Message(role="system", content="Be brief.")
    first = with_tools_as_text([system, USER], TOOLS, GENERIC, calls_too=False)[0]
    assert first.content == "Be brief.\n\n" + tool_instructions(TOOLS, GENERIC)


def test_calls_and_results_become_text() -> None:
    messages = with_tools_as_text([USER, ASKED, *RESULTS, USER], (), GENERIC, calls_too=True)
    assert [message.role for message in messages] == ["user", "assistant", "user", "user"]
    assert messages[1].content == (
        'Ok.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    )
    assert messages[1].tool_calls == ()
    content = messages[2].content
    assert isinstance(content, tuple)
    text = "".join(part.text for part in content if isinstance(part, TextPart))
    assert text == "<tool_response>\n4\n</tool_response>\n<tool_response>\n5\n</tool_response>"


def test_calls_stay_where_the_template_writes_them() -> None:
    assert with_tools_as_text([USER, ASKED, *RESULTS], (), GENERIC, calls_too=False) == (
        USER,
        ASKED,
        *RESULTS,
    )


def test_of_arguments_that_were_cut_the_whole_members_are_kept() -> None:
    broken = Message(
        role="assistant", tool_calls=(ToolCall("a", FunctionCall("f", '{"a": "whole", "b": "HALF')),)
    )
    for chat_format in FORMATS:
        (message,) = with_tools_as_text([broken], (), chat_format, calls_too=True)
        assert isinstance(message.content, str)
        assert "whole" in message.content
        assert "HALF" not in message.content


def test_images_of_a_result_are_not_lost() -> None:
    image = ImagePart("data:image/png;base64,")
    result = Message(role="tool", content=(image,), tool_call_id="a")
    (message,) = with_tools_as_text([result], (), GENERIC, calls_too=True)
    assert isinstance(message.content, tuple)
    assert image in message.content


NESTED = '{"o": {"k": [1, "two", null, true]}, "s": "é\\n"}'
TAGGED: Parts = (Slot.KEY, "|", Slot.IS_STRING, "|", Slot.JSON_TYPE, "|", Slot.VALUE)


def written(arguments: ArgumentSyntax, text: str) -> str:
    layout = CallLayout(call=(Slot.NAME, "(", Slot.ARGUMENTS, ")"), triggers=(), arguments=arguments)
    call = write_calls(layout, [ToolCall("id", FunctionCall("f", text))])
    assert call.startswith("f(") and call.endswith(")")
    return call[2:-1]


@pytest.mark.parametrize(
    ("syntax", "text", "expected"),
    [
        (JsonArguments(), "", "{}"),
        (JsonArguments(), '{"a":1.50,"b":"é"}', '{"a": 1.5, "b": "é"}'),
        (JsonArguments(), "[1]", "{}"),
        (JsonArguments(), '{"a": 1, "b":', '{"a": 1}'),
        (TaggedArguments(TAGGED, ";"), '{"a": "x", "b": 1, "c": true, "d": null, "e": [1], "f": {}}',
         "a|true|string|x;b|false|number|1;c|false|boolean|true;d|false|null|null;e|false|array|[1];f|false|object|{}"),
        (TaggedArguments(TAGGED), "not JSON", ""),
        (TaggedArguments(TAGGED), "", ""),
        (PythonArguments(), NESTED, 'o={"k": [1, "two", None, True]}, s="é\\n"'),
        (PythonArguments(json_words=True), NESTED, 'o={"k": [1, "two", null, true]}, s="é\\n"'),
        (PythonArguments(), '"text"', ""),
        (GemmaArguments("'"), NESTED, "{o:{k:[1,'two',null,true]},s:'é\n'}"),
        (GemmaArguments("'"), '{"a b": {"c:": 1, "": 2, "d-é": 3}}', "{'a b':{'c:':1,'':2,d-é:3}}"),
        (GemmaArguments("'"), "x", "{}"),
        (NestedTagArguments("!"), NESTED,
         "!<o>!<k>!<item>1!</item>!<item>two!</item>!<item>null!</item>!<item>true!</item>!</k>!</o>!<s>é\n!</s>"),
        (NestedTagArguments("!"), "x", ""),
    ],
)  # fmt: skip
def test_arguments(syntax: ArgumentSyntax, text: str, expected: str) -> None:
    assert written(syntax, text) == expected


def test_the_calls_of_a_turn() -> None:
    layout = CallLayout(
        call=("<", Slot.NAME, " ", Slot.INDEX, " ", Slot.CALL_ID, " ", Slot.ARGUMENTS, ">"),
        triggers=(),
        opening="[",
        separator=", ",
        closing="]",
        first_index=1,
    )
    calls = [ToolCall("x", FunctionCall("f", "{}")), ToolCall("y", FunctionCall("g", '{"a":1}'))]
    assert write_calls(layout, calls) == '[<f 1 x {}>, <g 2 y {"a": 1}>]'
