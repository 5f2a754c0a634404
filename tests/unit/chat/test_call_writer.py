"""Calls as the layouts write them."""

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
from jan_serve.chat.call_writer import write_calls
from jan_serve.core.messages import FunctionCall, ToolCall

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
