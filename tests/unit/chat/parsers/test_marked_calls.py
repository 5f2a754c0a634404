"""Text, thoughts and calls, told apart by their markers: JSON calls, whose keys have any order, and bare names before
JSON."""

from __future__ import annotations

import re

import pytest

from jan_serve.chat.parsers.marked_calls import BareNameCalls, JsonCalls, MarkerParser
from tests.unit.chat.formats.answers import parse, parse_everywhere
from tests.unit.chat.parsers.syntax import text_and_calls, with_parser

pytestmark = pytest.mark.drawn

CALLS = JsonCalls(closers=("</call>",))
NOW = '<call>{"name": "now"}</call>'
FORMAT = with_parser(MarkerParser(CALLS, ("<call>",), ignored=("<pad>",)))
UNMARKED = with_parser(MarkerParser(CALLS, ("<call>",), first=JsonCalls(known_only=True)))


@pytest.mark.parametrize(
    ("answer", "text", "reasoning", "calls"),
    [
        ("Hi", "Hi", "", 0),
        ("<pad>Hi<pad>!", "Hi!", "", 0),
        (f"<think>a</think>Hi{NOW}", "Hi", "a", 1),
        (f"<think>a{NOW}</think>b", "b", f"a{NOW}", 0),
        ("</think>b", "b", "", 0),
        ("b</think>c", "b</think>c", "", 0),
        ("b<think>c</think>", "b<think>c</think>", "", 0),
        ("<think>a</think><think>b</think>c", "c", "ab", 0),
        ("<think>a", "", "a", 0),
        ("a <call>b", "a <call>b", "", 0),
        (f"{NOW}{NOW}", "", "", 2),
        ("<cal", "<cal", "", 0),
    ],
)
def test_spans(answer: str, text: str, reasoning: str, calls: int) -> None:
    read = parse_everywhere(FORMAT, answer)
    assert (read.text, read.reasoning, len(read.calls)) == (text, reasoning, calls)


def test_a_thought_that_the_prompt_began() -> None:
    read = parse_everywhere(FORMAT, "a</think>b", starts_in_thought=True)
    assert (read.text, read.reasoning) == ("b", "a")


def test_thoughts_that_are_not_split_keep_their_markers() -> None:
    read = parse_everywhere(FORMAT, "<think>a</think>b", split_thoughts=False)
    assert (read.text, read.reasoning) == ("<think>a</think>b", "")


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        ('{"name": "now"}', "", 1),
        ('<think>a</think>\n{"name": "now"}', "", 1),
        ('b {"name": "now"}', 'b {"name": "now"}', 0),
        ('{"a": 1}', '{"a": 1}', 0),
    ],
)
def test_calls_without_a_marker_come_first(answer: str, text: str, calls: int) -> None:
    read = parse_everywhere(UNMARKED, answer)
    assert (read.text, len(read.calls)) == (text, calls)


def test_without_tools_nothing_is_a_call() -> None:
    assert parse(FORMAT, [NOW], tools=()).text == NOW


CLOSED = JsonCalls(closers=("</call>",))
KNOWN = JsonCalls(known_only=True, not_calls=("none",))
BY_NAME = JsonCalls(name_is_key=True)
CALLS_NOW = [("now", "{}")]


@pytest.mark.parametrize(
    ("syntax", "answer", "text", "calls"),
    [
        (CLOSED, '<call>{"name": "now", "arguments": {}}</call>.', ".", CALLS_NOW),
        (CLOSED, '<call> {"parameters": {"a": [1]}, "name": "now"} </call>.', ".", [("now", '{"a": [1]}')]),
        (CLOSED, '<call>{"name": "now"}</call>', "", CALLS_NOW),
        (CLOSED, '<call>{"name": "now", "arguments": null}</call>', "", CALLS_NOW),
        (CLOSED, '<call>{"name": "now", "arguments": "{\\"a\\": 1}"}</call>', "", [("now", '{"a": 1}')]),
        (CLOSED, '<call>{"type": "function", "function": {"name": "now", "arguments": {}}}</call>', "", CALLS_NOW),
        (CLOSED, '<call>[{"name": "now"}, {"name": "add", "arguments": {"values": []}}]</call>.', ".",
         [*CALLS_NOW, ("add", '{"values": []}')]),
        (CLOSED, '<call>{"name": "now"}]}</call>.', ".", CALLS_NOW),
        (CLOSED, '<call>{"name": "now", "arguments": {"a": tru}}</call>.', ".", [("now", '{"a": tru}')]),
        (CLOSED, '<call>{"arguments": {}}</call>.', '<call>{"arguments": {}}</call>.', []),
        (CLOSED, '<call>{"name": 5}</call>', '<call>{"name": 5}</call>', []),
        (CLOSED, "<call>hello</call>", "<call>hello</call>", []),
        (CLOSED, f'<call>{{"name": "{"n" * 257}"}}</call>', f'<call>{{"name": "{"n" * 257}"}}</call>', []),
        (KNOWN, '<call>{"name": "now"}; {"name": "now"}', "", CALLS_NOW * 2),
        (KNOWN, '<call>{"name": "unknown", "arguments": {}}', '<call>{"name": "unknown", "arguments": {}}', []),
        (KNOWN, '<call>{"name": "now", "colour": 1}', '<call>{"name": "now", "colour": 1}', []),
        (BY_NAME, '<call>{"now": {}}', "", CALLS_NOW),
    ],
)  # fmt: skip
def test_calls(syntax: JsonCalls, answer: str, text: str, calls: list[tuple[str, str]]) -> None:
    assert text_and_calls(syntax, answer) == (text, calls)


def test_a_marker_with_the_bracket_begins_an_array() -> None:
    answer = '<call>[{"name": "now"}, {"name": "now"}].'
    assert text_and_calls(JsonCalls(), answer, "<call>[")[1] == CALLS_NOW * 2
    nested = '<call>[[{"name": "now"}]]'
    assert text_and_calls(JsonCalls(), nested, "<call>[") == (nested, [])


def test_what_follows_broken_arguments_is_theirs_up_to_the_closer() -> None:
    answer = '<call>{"name": "now", "arguments": 1 2}</call>.'
    assert text_and_calls(CLOSED, answer) == (".", [("now", "1 2}")])
    assert text_and_calls(JsonCalls(), answer) == ("2}</call>.", [("now", "1")])


PLAIN = BareNameCalls(arguments=("<args>",), closers=("</call>",))
KNOWN_NAMES = BareNameCalls(arguments=("<args>",), closers=("</call>",), known_only=True)
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
        (KNOWN_NAMES, '<call>other<args>{"a": 1}</call>', '<call>other<args>{"a": 1}</call>', []),
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
def test_calls_with_a_bare_name(
    syntax: BareNameCalls, answer: str, text: str, calls: list[tuple[str, str]]
) -> None:
    assert text_and_calls(syntax, answer) == (text, calls)
