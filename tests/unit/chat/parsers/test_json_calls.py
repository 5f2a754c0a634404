"""JsonCalls: objects with a name and arguments, in any order of the keys; what is no call is text."""

from __future__ import annotations

import pytest

from jan_serve.chat.parsers.json_calls import JsonCalls
from tests.unit.chat.parsers.syntax import text_and_calls

CLOSED = JsonCalls(closers=("</call>",))
KNOWN = JsonCalls(known_only=True, not_calls=("none",))
BY_NAME = JsonCalls(name_is_key=True)
NOW = [("now", "{}")]


@pytest.mark.parametrize(
    ("syntax", "answer", "text", "calls"),
    [
        (CLOSED, '<call>{"name": "now", "arguments": {}}</call>.', ".", NOW),
        (CLOSED, '<call> {"parameters": {"a": [1]}, "name": "now"} </call>.', ".", [("now", '{"a": [1]}')]),
        (CLOSED, '<call>{"name": "now"}</call>', "", NOW),
        (CLOSED, '<call>{"name": "now", "arguments": null}</call>', "", NOW),
        (CLOSED, '<call>{"name": "now", "arguments": "{\\"a\\": 1}"}</call>', "", [("now", '{"a": 1}')]),
        (CLOSED, '<call>{"type": "function", "function": {"name": "now", "arguments": {}}}</call>', "", NOW),
        (CLOSED, '<call>[{"name": "now"}, {"name": "add", "arguments": {"values": []}}]</call>.', ".",
         [*NOW, ("add", '{"values": []}')]),
        (CLOSED, '<call>{"name": "now"}]}</call>.', ".", NOW),
        (CLOSED, '<call>{"name": "now", "arguments": {"a": tru}}</call>.', ".", [("now", '{"a": tru}')]),
        (CLOSED, '<call>{"arguments": {}}</call>.', '<call>{"arguments": {}}</call>.', []),
        (CLOSED, '<call>{"name": 5}</call>', '<call>{"name": 5}</call>', []),
        (CLOSED, "<call>hello</call>", "<call>hello</call>", []),
        (CLOSED, f'<call>{{"name": "{"n" * 257}"}}</call>', f'<call>{{"name": "{"n" * 257}"}}</call>', []),
        (KNOWN, '<call>{"name": "now"}; {"name": "now"}', "", NOW * 2),
        (KNOWN, '<call>{"name": "unknown", "arguments": {}}', '<call>{"name": "unknown", "arguments": {}}', []),
        (KNOWN, '<call>{"name": "now", "colour": 1}', '<call>{"name": "now", "colour": 1}', []),
        (BY_NAME, '<call>{"now": {}}', "", NOW),
    ],
)  # fmt: skip
def test_calls(syntax: JsonCalls, answer: str, text: str, calls: list[tuple[str, str]]) -> None:
    assert text_and_calls(syntax, answer) == (text, calls)


def test_a_marker_with_the_bracket_begins_an_array() -> None:
    answer = '<call>[{"name": "now"}, {"name": "now"}].'
    assert text_and_calls(JsonCalls(), answer, "<call>[")[1] == NOW * 2
