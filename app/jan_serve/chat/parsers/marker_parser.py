"""Parser for the common answer format: text, with thoughts and calls between markers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.text_stream import Steps
from jan_serve.text.markers import marker_set

CallParser = Callable[[StreamParser, str], Steps[None]]
"""Parses calls after the given marker. Releases text that is not a call (`StreamParser.release`)."""


class MarkerParser(msgspec.Struct, frozen=True):
    """The parser of a format whose calls begin at one of `openers`.

    ignored: markers without meaning, such as those around all calls. around_text: ordinary text that opens and closes
    the text of an answer, ignored there only. first: parses calls without a marker, at the start of the answer or after
    a thought; its marker is "".
    """

    read_calls: CallParser
    openers: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    around_text: tuple[str, str] = ("", "")
    first: CallParser | None = None

    def __call__(self, context: StreamParser) -> Steps[None]:
        return _Reader(self, context).read()


class _Reader:
    def __init__(self, syntax: MarkerParser, context: StreamParser) -> None:
        self._thought = thought = context.chat_format.thought
        self._context = context
        self._read_calls = syntax.read_calls
        self._openers = syntax.openers if context.tools else ()
        self._first = syntax.first if context.tools else None
        self._text_open, self._text_close = syntax.around_text
        self._is_text_open = False
        opens, closes = (thought.opens, thought.closes) if thought is not None else ((), ())
        own = (*self._openers, *opens, *closes, *filter(None, syntax.around_text))
        hidden = (token for token in context.control_tokens if token not in own)
        self._ignored = (*syntax.ignored, *hidden)
        self._markers = marker_set(*own, *self._ignored)

    def read(self) -> Steps[None]:
        context = self._context
        marker: str | None = None
        if context.starts_in_thought:
            marker = yield from self._read_thought("")
        while True:
            if marker is None:
                if self._first is not None and not context.out.has_text:
                    yield from self._read_unmarked(self._first)
                marker = yield from context.stream.read_until(self._markers, context.out.text)
            if marker is None:
                return
            marker = yield from self._at_marker(marker)

    def _read_unmarked(self, first: CallParser) -> Steps[None]:
        """Read calls without a marker, if any come next."""
        stream = self._context.stream
        stream.record()
        yield from stream.skip_space()
        yield from first(self._context, "")
        self._context.release()

    def _at_marker(self, marker: str) -> Steps[str | None]:
        """Read the span that `marker` begins. Returns the marker that ended it, if that one begins another span."""
        context, thought = self._context, self._thought
        if thought is not None and marker in thought.opens:
            if thought.anywhere or not context.out.has_text:
                return (yield from self._read_thought(marker))
            self._show(marker)
        elif marker in self._openers:
            context.stream.record(marker)
            yield from self._read_calls(context, marker)
        elif marker == self._text_open and not (context.out.has_text or self._is_text_open):
            self._is_text_open = True
        elif marker == self._text_close and self._is_text_open:
            self._is_text_open = False
        elif marker in (self._text_open, self._text_close):
            context.out.text(marker)
        elif marker not in self._ignored:
            # A closing marker alone: before any text it closes an empty thought, later it is text.
            if context.out.has_text or not context.split_thoughts:
                self._show(marker)
            else:
                context.out.close_thought()
        return None

    def _show(self, marker: str) -> None:
        """A marker of a thought where none is read: text, unless it is a control token."""
        if marker not in self._context.control_tokens or not self._context.split_thoughts:
            self._context.out.text(marker)

    def _read_thought(self, opener: str) -> Steps[str | None]:
        """Read a thought after its opening marker. Returns the marker that ended it, unless it was a closing one."""
        context, thought = self._context, self._thought
        assert thought is not None
        split = context.split_thoughts
        if split:
            context.out.open_thought()
        else:
            context.out.text(opener)
        ends = tuple(end for end in thought.ends if end in self._openers or end in self._ignored)
        markers = marker_set(*thought.closes, *ends, *self._ignored)
        while True:
            marker = yield from context.stream.read_until(markers, context.out.text)
            if marker is None:
                return None
            if marker in ends or marker in thought.closes:
                break
        if split:
            context.out.close_thought()
        elif marker in thought.closes:
            context.out.text(marker)
        return marker if marker in ends else None
