"""Answers as one syntax of calls reads them, without the rest of a model family's format."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.formats.elements import QWEN3_CODER
from jan_serve.chat.parsers.marked_calls import CallParser, MarkerParser
from jan_serve.chat.text_stream import Steps
from tests.unit.chat.formats.answers import Answer, parse_everywhere


def with_parser(parser: Callable[[StreamParser], Steps[None]]) -> ChatFormat:
    """A format that reads answers with it; thoughts are between `<think>` and `</think>`."""
    return replace(QWEN3_CODER, name="test", parse=parser)


def text_and_calls(
    calls: CallParser, answer: str, opener: str = "<call>"
) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls of an answer whose calls begin at the opener, the same however it is cut."""
    read: Answer = parse_everywhere(with_parser(MarkerParser(calls, (opener,))), answer)
    return read.text, [(call.name, call.arguments) for call in read.calls]
