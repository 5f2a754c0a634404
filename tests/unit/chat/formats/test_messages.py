"""Messages of gpt-oss and Muse Glimmer: to whom they go, and damage that costs nothing after it."""

from __future__ import annotations

import random
import re
from typing import Final, NamedTuple

import pytest

from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.formats.messages import (
    GPT_OSS,
    MUSE_GLIMMER,
    TEXT,
    THOUGHT,
    Kind,
    MessageParser,
    Route,
    harmony_route,
)
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.text_stream import Sink, Steps, discard
from jan_serve.chat.tools_as_text import write_calls
from tests.support.drawn_grid import some
from tests.unit.chat.formats.answers import Answer, call, parse, parse_everywhere
from tests.unit.chat.parsers.syntax import with_parser

pytestmark = pytest.mark.drawn

ROLES = pytest.mark.parametrize("name", ["assistant", "user", "all"])


@ROLES
def test_a_role_is_no_tool_whatever_recipient_comes_first(name: str) -> None:
    assert harmony_route(f"<|channel|>commentary to=functions.add to={name}").kind is Kind.CALL
    assert harmony_route(f"<|channel|>final to={name}").kind is Kind.TEXT


@ROLES
def test_a_function_may_have_the_name_of_a_role(name: str) -> None:
    route = harmony_route(f"<|channel|>commentary to=functions.{name} <|constrain|>json")
    assert route == Route(Kind.CALL, name)


START: Final = "<|start|>assistant"


class Family(NamedTuple):
    """markers: none of them may be shown. parts: of headers, damaged at will. end: of a message."""

    chat_format: ChatFormat
    markers: tuple[str, ...]
    parts: tuple[str, ...]
    end: str

    def message(self, header: str, body: str) -> str:
        return f"{START}{header}<|message|>{body}{self.end}"


FAMILIES: Final = (
    Family(
        GPT_OSS,
        ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>"),
        ("<|channel|>", "analysis", "commentary", " to=functions.now", "<|constrain|>", "json", "??", " "),
        "<|end|>",
    ),
    Family(
        MUSE_GLIMMER,
        ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
        (" to=", "self", "user", "now", "??", " "),
        "<|eom|>",
    ),
)
families = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.chat_format.name)


def good(family: Family) -> str:
    """A thought, a call and a text."""
    calls = (
        START + write_calls(family.chat_format.calls, [call("get_weather", {"city": "Oslo"})]) + family.end
    )
    if family.chat_format is GPT_OSS:
        thought, text = "<|channel|>analysis", "<|channel|>final"
    else:
        thought, text = " to=self", " to=user"
    return family.message(thought, "Hm.") + calls + family.message(text, "Hi.")


def assert_good_is_read(family: Family, answer: Answer) -> None:
    assert [(name, values) for name, values in answer.values()][-1] == ("get_weather", {"city": "Oslo"})
    assert answer.reasoning.endswith("Hm.")
    assert answer.text.endswith("Hi.")
    for marker in family.markers:
        assert marker not in answer.text
        assert marker not in answer.reasoning


@families
def test_a_header_without_a_body_costs_nothing(family: Family) -> None:
    draw = random.Random(5)
    for _ in range(20):
        parts = draw.choices((*family.parts, START), k=draw.randrange(1, 6))
        damaged = "".join(parts).removeprefix(START) + draw.choice((family.end, ""))
        answer = parse_everywhere(family.chat_format, damaged + good(family))
        assert_good_is_read(family, answer)


@families
def test_a_body_without_an_end_costs_nothing(family: Family) -> None:
    draw = random.Random(6)
    for _ in range(60):
        header = "".join(draw.choices(family.parts, k=draw.randrange(0, 4))).strip()
        stray = draw.choice(("", "<|message|>"))
        damaged = f"{header}<|message|>Not JSON{stray}."
        assert_good_is_read(family, parse(family.chat_format, [damaged + good(family)]))


@families
def test_damage_at_any_place_shows_no_marker(family: Family) -> None:
    """A marker that is missing, doubled, or stands where it does not belong."""
    draw = random.Random(7)
    whole = good(family)
    places = [found.start() for found in re.finditer(r"<\|\w+\|>|.", whole, re.DOTALL)]
    for _ in range(60):
        at = draw.choice(places)
        marker = draw.choice(family.markers)
        match draw.randrange(3):
            case 0:
                damaged = whole[:at] + marker + whole[at:]
            case 1:
                found = whole.find(marker, at)
                damaged = whole if found < 0 else whole[:found] + whole[found + len(marker) :]
            case _:
                damaged = whole.replace(marker, marker * 2, 1)
        answer = parse(family.chat_format, [damaged + good(family)])
        assert answer == parse(family.chat_format, list(damaged + good(family)))
        assert not any(mark in answer.text for mark in family.markers), damaged


@families
def test_an_answer_cut_at_any_place_shows_no_marker(family: Family) -> None:
    whole = good(family).removeprefix(START)
    for at in some(range(len(whole)), len(whole) // 3):
        for cut in (True, False):
            answer = parse(family.chat_format, [whole[:at]], cut=cut)
            assert answer == parse(family.chat_format, list(whole[:at]), cut=cut)
            assert not any(mark in answer.text for mark in family.markers)
            if cut:
                assert "Hi.".startswith(answer.text)


def route(header: str) -> Route:
    if header.startswith("@think"):
        return THOUGHT
    return Route(Kind.CALL, header.removeprefix("@to ")) if header.startswith("@to ") else TEXT


def read_call(context: StreamParser, recipient: str) -> Steps[Sink | None]:
    if recipient not in context.tools:
        return None
    context.open_call(recipient)
    yield from copy_json(context.stream, context.out.arguments)
    return discard


FORMAT = with_parser(
    MessageParser(
        start="<start>",
        heads=("@", "<body>"),
        body="<body>",
        ends=("<end>",),
        route=route,
        read_call=read_call,
    )
)


@pytest.mark.parametrize(
    ("answer", "text", "reasoning", "calls"),
    [
        ("<body>Hi<end>", "Hi", "", []),
        ("Hi<end>", "Hi", "", []),
        ("@think<body>a<end><start>@say<body>b<end>", "b", "a", []),
        ("@think<body>a", "", "a", []),
        ("<start><body>a<end><start><body>b<end>", "a\n\nb", "", []),
        ("@to now<body>{}<end>", "", "", [("now", "{}")]),
        ("@to now<body>{}<end><start>@to now<body>{}<end>", "", "", [("now", "{}")] * 2),
        ("@to nobody<body>{}<end>", "{}", "", []),
        ("@say no body<end>", "", "", []),
        ("<start>@say no body<end>", "", "", []),
        ("<start>@say no body<end><start>@think<body>a<end>", "", "a", []),
        ("@say no<start>@to now<body>{}<end>", "", "", [("now", "{}")]),
        ("@think<body>a<start>@say<body>b<end>", "b", "a", []),
    ],
)
def test_messages(answer: str, text: str, reasoning: str, calls: list[tuple[str, str]]) -> None:
    read = parse_everywhere(FORMAT, answer)
    assert (read.text, read.reasoning, list(read.calls)) == (text, reasoning, calls)


def test_a_thought_that_the_prompt_began() -> None:
    read = parse_everywhere(FORMAT, "a<end><start><body>b", starts_in_thought=True)
    assert (read.text, read.reasoning) == ("b", "a")


def test_a_thought_that_is_not_split_keeps_its_header() -> None:
    read = parse_everywhere(FORMAT, "@think<body>a<end>b<end>", split_thoughts=False)
    assert (read.reasoning, read.text.startswith("@think<body>a<end>")) == ("", True)
