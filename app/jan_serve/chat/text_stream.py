"""Text that comes in pieces, read as if it were all there.

Parsers are written as plain recursive descent in generators: a read that needs text which has not come yet yields, and
goes on after the next `feed`. As no read ever sees where the pieces were cut, no parser can depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from jan_serve.text.markers import MarkerSet

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A read: yields while it waits for text, returns its result."""

Sink = Callable[[str], None]
"""Takes text as it comes."""

_SPACE: Final = re.compile(r"\s*")


def discard(text: str) -> None:
    """A sink for text that nobody needs."""
    del text


class TextStream:
    """The text of one answer. Every method that returns Steps may wait; at the end of the text it no longer does."""

    __slots__ = ("_at", "_closed", "_recording", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._closed = False
        self._recording: list[str] | None = None

    def feed(self, text: str) -> None:
        """More text has come."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def close(self) -> None:
        """No more text will come."""
        self._closed = True

    @property
    def at_end(self) -> bool:
        """Whether all text has been read and none will come."""
        return self._closed and self._at == len(self._text)

    def record(self, prefix: str = "") -> None:
        """Remember what is read from here on, after `prefix`; a running recording is dropped."""
        self._recording = [prefix]

    def recorded(self) -> str:
        """End the recording and return it; "" where none runs."""
        text = "".join(self._recording or ())
        self._recording = None
        return text

    def until(self, markers: MarkerSet, sink: Sink, *, cut_off: Sink | None = None) -> Steps[str | None]:
        """Read to the end of the first marker. Text before it goes to `sink` as it comes; None at the end.

        cut_off: takes the beginning of a marker that the text ends with, in place of `sink`.
        """
        while True:
            found = markers.find(self._text, self._at, final=self._closed and cut_off is None)
            if found.start > self._at:
                sink(self._read(found.start))
            if found.marker is not None:
                self._read(found.start + len(found.marker))
                return found.marker
            if self._closed:
                if cut_off is not None:
                    cut_off(self._read(len(self._text)))
                return None
            yield

    def peek(self, size: int) -> Steps[str]:
        """The next `size` characters without reading them; fewer only at the end."""
        while len(self._text) - self._at < size and not self._closed:
            yield
        return self._text[self._at : self._at + size]

    def take(self, size: int) -> Steps[str]:
        """The next `size` characters; fewer only at the end."""
        yield from self.peek(size)
        return self._read(min(self._at + size, len(self._text)))

    def run(self, pattern: re.Pattern[str], sink: Sink) -> Steps[None]:
        """Read the longest run that `pattern` matches. It must be a repeated character class, or cuts would show."""
        while True:
            match = pattern.match(self._text, self._at)
            if match is not None and match.end() > self._at:
                sink(self._read(match.end()))
            if self._at < len(self._text) or self._closed:
                return
            yield

    def skip_space(self) -> Steps[None]:
        """Read white space."""
        yield from self.run(_SPACE, discard)

    def accept(self, *literals: str) -> Steps[str | None]:
        """Read the first literal that the text goes on with; None, and nothing read, where it goes on otherwise.

        A literal that the end of the text cuts off is read, and does not count.
        """
        for literal in literals:
            if (yield from self.is_at(literal)):
                self._read(self._at + len(literal))
                return literal
        return None

    def is_at(self, literal: str) -> Steps[bool]:
        """Whether the text goes on with `literal`, which stays to be read. As `accept` where the text ends in it."""
        while not self._text.startswith(literal, self._at):
            if not literal.startswith(self._text[self._at : self._at + len(literal)]):
                return False
            if self._closed:
                self._read(len(self._text))
                return False
            yield
        return True

    def _read(self, end: int) -> str:
        text = self._text[self._at : end]
        self._at = end
        if self._recording is not None:
            self._recording.append(text)
        return text
