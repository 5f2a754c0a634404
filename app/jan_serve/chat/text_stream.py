"""Incremental reading of text that arrives in pieces.

Parsers are recursive descent in generators: a read that needs more text yields, and resumes after the next `feed`. No
read sees where the pieces were cut, so no parser can depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from jan_serve.text.markers import MarkerSet

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A generator that yields while it waits for text, and returns its result."""

Sink = Callable[[str], None]
"""Consumes text as it arrives."""

NAME: Final = re.compile(r"[\w.\-:/]*")
"""Names of tools and ids of calls, where no other mark ends them."""
_SPACE: Final = re.compile(r"\s*")


def discard(text: str) -> None:
    """A sink that drops its text."""
    del text


class TextStream:
    """The text of one answer. Methods that return Steps may wait, but never after `close`."""

    __slots__ = ("_closed", "_cut", "_position", "_recording", "_starved", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._closed = False
        self._cut = False
        self._starved = False
        self._recording: list[str] | None = None

    def feed(self, text: str) -> None:
        self._text = self._text[self._position :] + text
        self._position = 0

    def close(self, *, cut: bool = False) -> None:
        """cut: a limit ended the text, so an unfinished marker at its end is dropped."""
        self._closed = True
        self._cut = cut

    @property
    def is_cut_short(self) -> bool:
        """Whether a limit ended the text, and what was read last could have gone on."""
        return self._cut and self._starved

    @property
    def at_end(self) -> bool:
        """Whether the stream is closed and all text is read."""
        return self._closed and self._position == len(self._text)

    def record(self, prefix: str = "") -> None:
        """Start recording all text that is read, after `prefix`. Discards a recording in progress."""
        self._recording = [prefix]

    def stop_recording(self) -> str:
        """End the recording and return it; "" if none is in progress."""
        text = "".join(self._recording or ())
        self._recording = None
        return text

    def read_until(self, markers: MarkerSet, sink: Sink, *, cut_off: Sink | None = None) -> Steps[str | None]:
        """Read up to and including the first marker, and return it; None if the text ends first.

        sink: receives the text before the marker as it arrives. cut_off: receives an unfinished marker at the end of
        the text, instead of `sink`.
        """
        while True:
            if self._cut and cut_off is None:
                cut_off = discard
            found = markers.find(self._text, self._position, final=self._closed and cut_off is None)
            if found.start > self._position:
                sink(self._read(found.start))
            if found.marker is not None:
                self._read(found.start + len(found.marker))
                return found.marker
            if self._closed:
                self._starved = True
                if cut_off is not None:
                    cut_off(self._read(len(self._text)))
                return None
            yield

    def peek(self, size: int) -> Steps[str]:
        """Return the next `size` characters without reading them; fewer only at the end."""
        while len(self._text) - self._position < size and not self._closed:
            yield
        if len(self._text) - self._position < size:
            self._starved = True
        return self._text[self._position : self._position + size]

    def take(self, size: int) -> Steps[str]:
        """Read `size` characters; fewer only at the end."""
        yield from self.peek(size)
        return self._read(min(self._position + size, len(self._text)))

    def read_matching(self, pattern: re.Pattern[str], sink: Sink) -> Steps[None]:
        """Read the longest match of `pattern`, which must be a repeated character class, or cuts would show."""
        while True:
            match = pattern.match(self._text, self._position)
            if match is not None and match.end() > self._position:
                sink(self._read(match.end()))
            if self._position < len(self._text):
                return
            if self._closed:
                self._starved = True
                return
            yield

    def take_matching(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Read and return the longest match, as `read_matching` does."""
        pieces: list[str] = []
        yield from self.read_matching(pattern, pieces.append)
        return "".join(pieces)

    def skip_space(self) -> Steps[None]:
        yield from self.read_matching(_SPACE, discard)

    def accept(self, *literals: str) -> Steps[str | None]:
        """Read and return the first literal that comes next; None, with nothing read, if none does.

        A literal cut off by the end of the text is read, but gives None.
        """
        for literal in literals:
            if (yield from self.is_next(literal)):
                self._read(self._position + len(literal))
                return literal
        return None

    def is_next(self, literal: str) -> Steps[bool]:
        """Whether `literal` comes next; it is not read. A literal cut off by the end is handled as in `accept`."""
        while not self._text.startswith(literal, self._position):
            if not literal.startswith(self._text[self._position : self._position + len(literal)]):
                return False
            if self._closed:
                self._starved = True
                self._read(len(self._text))
                return False
            yield
        return True

    def _read(self, end: int) -> str:
        text = self._text[self._position : end]
        self._position = end
        if self._recording is not None:
            self._recording.append(text)
        return text
