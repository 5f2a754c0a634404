"""Parser of answers that are several messages, each with a header that says whom it is for (OpenAI's Harmony)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from jan_serve.chat.formats.format import ChatFormat, Reading
from jan_serve.chat.parsers.marked import AnswerReader
from jan_serve.chat.text_stream import Steps, discard
from jan_serve.text.markers import MarkerSet, marker_set


class Kind(Enum):
    """What a message is."""

    TEXT = "text"
    THOUGHT = "thought"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes. recipient: of a call, the tool."""

    kind: Kind
    recipient: str = ""


TEXT: Final = Route(Kind.TEXT)
THOUGHT: Final = Route(Kind.THOUGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSyntax:
    """How messages are divided.

    start: what every message but the first begins with (the prompt wrote the first one's). heads: what a header may
    begin with; an answer that begins otherwise is the text of a message that the prompt began. body: what ends a
    header. ends: what ends a message. route: reads a header. read_call: reads a call's body, and releases it as text
    if it is none.
    """

    start: str
    heads: tuple[str, ...]
    body: str
    ends: tuple[str, ...]
    route: Callable[[str], Route]
    read_call: Callable[[Reading, str], Steps[None]]


def messages_answer(syntax: MessageSyntax) -> AnswerReader:
    """The parser of a format with messages."""

    def read(form: ChatFormat, reading: Reading) -> Generator[None, None, None]:
        del form
        return _read(reading, syntax)

    return read


def _read(reading: Reading, syntax: MessageSyntax) -> Steps[None]:
    stream = reading.stream
    ends = marker_set(*syntax.ends)
    if reading.starts_in_thought:
        yield from _read_body(reading, THOUGHT, ends)
    while not stream.at_end:
        stream.record()
        yield from stream.accept(syntax.start)
        header = yield from _read_header(reading, syntax)
        if header is None:
            reading.release()
            yield from stream.until(ends, reading.out.text)
            continue
        route = syntax.route(header)
        if route.kind is Kind.CALL and reading.tools:
            yield from syntax.read_call(reading, route.recipient)
            yield from stream.until(ends, discard if reading.out.calls else reading.out.text)
            continue
        recorded = stream.recorded()
        yield from _read_body(reading, route, ends, recorded)


def _read_header(reading: Reading, syntax: MessageSyntax) -> Steps[str | None]:
    """A header up to the body; None where there is none: then a recording goes on."""
    stream = reading.stream
    head = yield from stream.accept(*syntax.heads)
    if head is None:
        return None
    pieces = [head]
    if head != syntax.body:
        marks = marker_set(syntax.body, *syntax.ends)
        if (yield from stream.until(marks, pieces.append)) != syntax.body:
            return None
    return "".join(pieces)


def _read_body(reading: Reading, route: Route, ends: MarkerSet, header: str = "") -> Steps[None]:
    stream, out = reading.stream, reading.out
    if route.kind is not Kind.THOUGHT:
        out.break_text()
        yield from stream.until(ends, out.text)
    elif reading.split_thoughts:
        out.open_thought()
        yield from stream.until(ends, out.text)
        if not stream.at_end:
            out.close_thought()
    else:
        out.text(header)
        end = yield from stream.until(ends, out.text)
        out.text(end or "")
