"""MarkerParser: text, thoughts and calls, told apart by their markers."""

from __future__ import annotations

import pytest

from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marker_parser import MarkerParser
from tests.unit.chat.formats.answers import parse, parse_everywhere
from tests.unit.chat.parsers.syntax import with_parser

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
