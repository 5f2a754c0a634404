"""MessageParser: messages with headers that name their recipient."""

from __future__ import annotations

import pytest

from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.message_parser import TEXT, THOUGHT, Kind, MessageParser, Route
from jan_serve.chat.text_stream import Sink, Steps, discard
from tests.unit.chat.formats.answers import parse_everywhere
from tests.unit.chat.parsers.syntax import with_parser


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
