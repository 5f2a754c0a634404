"""BareNameCalls: a name, then the arguments as JSON, with each literal around them left out or not."""

from __future__ import annotations

import re

import pytest

from jan_serve.chat.parsers.bare_name_calls import BareNameCalls
from jan_serve.chat.parsers.json_calls import JsonCalls
from tests.unit.chat.parsers.syntax import text_and_calls

PLAIN = BareNameCalls(arguments=("<args>",), closers=("</call>",))
KNOWN = BareNameCalls(arguments=("<args>",), closers=("</call>",), known_only=True)
FENCED = BareNameCalls(fence=("```json", "```"), closers=("</call>",))
WITH_ID = BareNameCalls(
    name=re.compile(r"functions\.(.+):\d+"), call_id="<id>", arguments=("<args>",), closers=("</call>",)
)
ID_FIRST = BareNameCalls(id_before="|", arguments=("<args>",))
OR_JSON = BareNameCalls(or_json=JsonCalls(closers=("</call>",)), closers=("</call>",))
CALL = [("now", '{"a": 1}')]


@pytest.mark.parametrize(
    ("syntax", "answer", "text", "calls"),
    [
        (PLAIN, '<call>now<args>{"a": 1}</call>.', ".", CALL),
        (PLAIN, '<call> now {"a": 1} </call>.', ".", CALL),
        (PLAIN, "<call>now</call>.", ".", [("now", "{}")]),
        (PLAIN, "<call>now and then", "<call>now and then", []),
        (PLAIN, '<call>{"a": 1}</call>', '<call>{"a": 1}</call>', []),
        (PLAIN, '<call>now<args>{"a": }</call>.', ".", [("now", '{"a": }')]),
        (PLAIN, '<call>now<args>{"a": 1', "", [("now", '{"a": 1')]),
        (PLAIN, '<call>other<args>{"a": 1}</call>', "", [("other", '{"a": 1}')]),
        (KNOWN, '<call>other<args>{"a": 1}</call>', '<call>other<args>{"a": 1}</call>', []),
        (FENCED, '<call>now\n```json\n{"a": 1}\n```</call>.', ".", CALL),
        (FENCED, '<call>now{"a": 1}</call>.', ".", CALL),
        (WITH_ID, '<call>functions.now:3<id>x7<args>{"a": 1}</call>', "", CALL),
        (WITH_ID, '<call>functions.now:3<args>{"a": 1}</call>', "", CALL),
        (WITH_ID, '<call>now<args>{"a": 1}</call>', '<call>now<args>{"a": 1}</call>', []),
        (ID_FIRST, '<call>x7|now<args>{"a": 1}.', ".", CALL),
        (OR_JSON, '<call>{"name": "now", "arguments": {"a": 1}}</call>', "", CALL),
        (OR_JSON, '<call>now {"a": 1}</call>', "", CALL),
    ],
)
def test_calls(syntax: BareNameCalls, answer: str, text: str, calls: list[tuple[str, str]]) -> None:
    assert text_and_calls(syntax, answer) == (text, calls)
