"""PythonCalls: calls with keyword arguments, whose literals become JSON; nothing is evaluated."""

from __future__ import annotations

import pytest

from jan_serve.chat.formats.python_calls import PythonCalls
from jan_serve.chat.parsers.marked_calls import JsonCalls
from tests.unit.chat.parsers.syntax import text_and_calls

CLOSED = PythonCalls(closers=("</call>",))
KNOWN = PythonCalls(known_only=True)
SUFFIXED = PythonCalls(closers=("</call>",), suffix=".call")
OR_JSON = PythonCalls(closers=("</call>",), or_json=JsonCalls(closers=("</call>",)))


@pytest.mark.parametrize(
    ("syntax", "answer", "text", "calls"),
    [
        (CLOSED, "<call>now()</call>.", ".", [("now", "{}")]),
        (CLOSED, "<call>[now( ), add(values=[1, 2.5,], opts={'a': None})]</call>.", ".",
         [("now", "{}"), ("add", '{"values": [1, 2.5], "opts": {"a": null}}')]),
        (CLOSED, """<call>now(a='it\\'s "so"', b=True)</call>""", "", [("now", '{"a": "it\'s \\"so\\"", "b": true}')]),
        (CLOSED, "<call>[now(a=1, a='x', b=2, a=[3]), now(a=2)]</call>.", ".",
         [("now", '{"a": 1, "b": 2}'), ("now", '{"a": 2}')]),
        (CLOSED, "<call>now(o={'a': 1, 'a': {'b': 2}, 'c': {'b': 3, b: 4}}, o=5)</call>", "",
         [("now", '{"o": {"a": 1, "c": {"b": 3}}}')]),
        (CLOSED, "<call>now(a=1, a=[2", "", [("now", '{"a": 1')]),
        (CLOSED, "<call>now(a=1, a=[2 3}</call>.", ".", [("now", '{"a": 1 3}')]),
        (CLOSED, "<call>now(a=1 2}</call>.", ".", [("now", '{"a": 1 2}')]),
        (CLOSED, "<call>now(a=1, .5}</call>.", ".", [("now", '{"a": 1 .5}')]),
        (CLOSED, "<call>now(a=1", "", [("now", '{"a": ')]),
        (CLOSED, "<call>now('x')</call>.", ".", [("now", "{'x')")]),
        (CLOSED, "<call>1 + 1</call>", "<call>1 + 1</call>", []),
        (CLOSED, "<call>now</call>", "<call>now</call>", []),
        (KNOWN, "<call>[exit()]", "<call>[exit()]", []),
        (KNOWN, "<call>[now()] then", "then", [("now", "{}")]),
        (SUFFIXED, "<call>now.call(a=1)</call>", "", [("now", '{"a": 1}')]),
        (OR_JSON, '<call>{"name": "now"}</call>', "", [("now", "{}")]),
        (OR_JSON, '<call>[{"name": "now"}]</call>', "", [("now", "{}")]),
    ],
)  # fmt: skip
def test_calls(syntax: PythonCalls, answer: str, text: str, calls: list[tuple[str, str]]) -> None:
    assert text_and_calls(syntax, answer) == (text, calls)
