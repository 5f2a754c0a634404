"""Parser for answers of several messages, each with a header that names its recipient (OpenAI's Harmony)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from jan_serve.chat.chat_format import ChatFormat, ParseContext
from jan_serve.chat.text_stream import Steps, discard
from jan_serve.text.markers import MarkerSet, marker_set


class Kind(Enum):
    TEXT = "text"
    THOUGHT = "thought"
    CALL = "call"


class Route(msgspec.Struct, frozen=True):
    """The kind of a message. recipient: whom it names; a message to a tool of the request is a call in any case."""

    kind: Kind
    recipient: str = ""


TEXT: Final = Route(Kind.TEXT)
THOUGHT: Final = Route(Kind.THOUGHT)


class MessageParser(msgspec.Struct, frozen=True, kw_only=True):
    """An AnswerParser for messages with these markers.

    start: begins every message; for the first one, the prompt contains it. heads: the possible beginnings of a header;
    an answer that begins otherwise is the text of a message that the prompt began. body: ends a header. ends: end a
    message. route: parses a header. read_call: parses a call's body, and releases it as text if it is not a call.
    """

    start: str
    heads: tuple[str, ...]
    body: str
    ends: tuple[str, ...]
    route: Callable[[str], Route]
    read_call: Callable[[ParseContext, str], Steps[None]]

    def __call__(self, chat_format: ChatFormat, context: ParseContext) -> Steps[None]:
        del chat_format
        return _read(context, self)


def _read(context: ParseContext, syntax: MessageParser) -> Steps[None]:
    stream = context.stream
    ends = marker_set(*syntax.ends)
    if context.starts_in_thought:
        yield from _read_body(context, THOUGHT, ends)
    while not stream.at_end:
        stream.record()
        yield from stream.accept(syntax.start)
        header = yield from _read_header(context, syntax)
        if header is None:
            context.release()
            yield from stream.read_until(ends, context.out.text)
            continue
        route = syntax.route(header)
        if context.tools and (route.kind is Kind.CALL or route.recipient in context.tools):
            before = context.out.calls
            yield from syntax.read_call(context, route.recipient)
            yield from stream.read_until(ends, discard if context.out.calls > before else context.out.text)
            continue
        recorded = stream.stop_recording()
        yield from _read_body(context, route, ends, recorded)


def _read_header(context: ParseContext, syntax: MessageParser) -> Steps[str | None]:
    """Read a header up to the body marker; None if there is none, with the recording still in progress."""
    stream = context.stream
    head = yield from stream.accept(*syntax.heads)
    if head is None:
        return None
    pieces = [head]
    if head != syntax.body:
        markers = marker_set(syntax.body, *syntax.ends)
        if (yield from stream.read_until(markers, pieces.append)) != syntax.body:
            return None
    return "".join(pieces)


def _read_body(context: ParseContext, route: Route, ends: MarkerSet, header: str = "") -> Steps[None]:
    stream, out = context.stream, context.out
    if route.kind is not Kind.THOUGHT:
        out.break_text()
        yield from stream.read_until(ends, out.text)
    elif context.split_thoughts:
        out.open_thought()
        yield from stream.read_until(ends, out.text)
        if not stream.at_end:
            out.close_thought()
    else:
        out.text(header)
        end = yield from stream.read_until(ends, out.text)
        out.text(end or "")
