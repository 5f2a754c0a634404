"""Parser for answers of several messages, each with a header that names its recipient (OpenAI's Harmony)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.text_stream import Sink, Steps
from jan_serve.text.markers import marker_set


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
    """The parser of a format of messages with these markers. A damaged message costs nothing of those after it.

    start: begins every message, with the role; for the first one, the prompt contains both. heads: the possible
    beginnings of the rest of a header; an answer that begins otherwise is the text of a message that the prompt began.
    body: ends a header. ends: end a message. resumes: those of `heads` that begin a header in the middle of a body too.
    strays: markers of headers without meaning in a body. route: parses a header. read_call: parses a call's body, and
    returns what receives the rest of it; None, with the recording still in progress, if it is not a call.
    """

    start: str
    role: str = ""
    heads: tuple[str, ...]
    body: str
    ends: tuple[str, ...]
    resumes: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    route: Callable[[str], Route]
    read_call: Callable[[StreamParser, str], Steps[Sink | None]]

    def __call__(self, context: StreamParser) -> Steps[None]:
        return _Reader(self, context).read()


class _Reader:
    def __init__(self, syntax: MessageParser, context: StreamParser) -> None:
        self._syntax = syntax
        self._context = context
        self._begins = (syntax.start, *syntax.resumes)
        self._header_ends = marker_set(syntax.body, syntax.start, *syntax.ends)
        self._body_ends = marker_set(syntax.body, *syntax.strays, *self._begins, *syntax.ends)

    def read(self) -> Steps[None]:
        context = self._context
        begun: str | None = None
        if context.starts_in_thought:
            begun = yield from self._read_body(THOUGHT)
        while begun is not None or not context.stream.at_end:
            begun = yield from self._read_message(begun)

    def _read_message(self, begun: str | None) -> Steps[str | None]:
        """Read a message. begun: its first marker, if that is read already. Returns that of the next message."""
        context, stream, syntax = self._context, self._context.stream, self._syntax
        stream.record(begun or "")
        if begun is None:
            begun = yield from stream.accept(syntax.start)
        head = begun
        if begun == syntax.start:
            yield from stream.accept(syntax.role)
        elif begun is None:
            head = yield from stream.accept(*syntax.heads)
            if head is None:
                context.release()
                return (yield from self._read_rest(context.out.text))
        pieces = [head or ""]
        end = head
        if head != syntax.body:
            end = yield from stream.read_until(self._header_ends, pieces.append)
        header = "".join(pieces).removeprefix(syntax.start)
        if end != syntax.body:
            stream.stop_recording()  # a header without a body means nothing
            return end if end in self._begins else None
        route = syntax.route(header)
        if context.tools and (route.kind is Kind.CALL or route.recipient in context.tools):
            return (yield from self._read_call(route.recipient))
        return (yield from self._read_body(route, stream.stop_recording()))

    def _read_call(self, recipient: str) -> Steps[str | None]:
        context = self._context
        context.stream.record()
        rest = yield from self._syntax.read_call(context, recipient)
        if rest is None:
            context.out.break_text()
            context.release()
            rest = context.out.text
        return (yield from self._read_rest(rest))

    def _read_body(self, route: Route, header: str = "") -> Steps[str | None]:
        context, out = self._context, self._context.out
        if route.kind is not Kind.THOUGHT:
            out.break_text()
            return (yield from self._read_rest(out.text))
        if not context.split_thoughts:
            out.text(header)
            end = yield from context.stream.read_until(self._body_ends, out.text)
            begins = end in self._begins
            out.text("" if begins else end or "")
            return end if begins else None
        out.open_thought()
        begun = yield from self._read_rest(out.text)
        if begun is not None or not context.stream.at_end:
            out.close_thought()
        return begun

    def _read_rest(self, sink: Sink) -> Steps[str | None]:
        """Read a body up to its end. Returns the marker that ended it, if that one begins the next message."""
        end: str | None = self._syntax.body
        while end == self._syntax.body or end in self._syntax.strays:
            end = yield from self._context.stream.read_until(self._body_ends, sink)
        return end if end in self._begins else None
