"""Parser of the common shape of answers: text, with thoughts and calls between markers."""

from __future__ import annotations

from collections.abc import Callable, Generator

from jan_serve.chat.formats.format import ChatFormat, Reading, Thought
from jan_serve.chat.text_stream import Steps
from jan_serve.text.markers import marker_set

CallsReader = Callable[[Reading, str], Steps[None]]
"""Reads calls behind the marker it is given. What it cannot read as a call it releases as text (`Reading.release`)."""

AnswerReader = Callable[[ChatFormat, Reading], Steps[None]]


def marked_answer(
    read_calls: CallsReader, *openers: str, ignored: tuple[str, ...] = (), first: CallsReader | None = None
) -> AnswerReader:
    """The parser of a format whose calls begin at one of `openers`.

    ignored: markers that carry nothing, such as those around all calls, or around text. first: reads calls that have no
    marker, at the start of the answer or behind a thought; it gets "".
    """

    def read(form: ChatFormat, reading: Reading) -> Generator[None, None, None]:
        return _Marked(form.thought, reading, read_calls, openers, ignored, first).read()

    return read


class _Marked:
    """One answer being read."""

    def __init__(
        self,
        thought: Thought | None,
        reading: Reading,
        read_calls: CallsReader,
        openers: tuple[str, ...],
        ignored: tuple[str, ...],
        first: CallsReader | None,
    ) -> None:
        self._thought = thought
        self._reading = reading
        self._read_calls = read_calls
        self._openers = openers if reading.tools else ()
        self._ignored = ignored
        self._first = first if reading.tools else None
        opens, closes = (thought.opens, thought.closes) if thought is not None else ((), ())
        self._markers = marker_set(*self._openers, *ignored, *opens, *closes)

    def read(self) -> Steps[None]:
        reading = self._reading
        marker: str | None = None
        if reading.starts_in_thought:
            marker = yield from self._read_thought("")
        while True:
            if marker is None:
                if self._first is not None and not reading.out.has_text:
                    yield from self._read_unmarked(self._first)
                marker = yield from reading.stream.until(self._markers, reading.out.text)
            if marker is None:
                return
            marker = yield from self._at_marker(marker)

    def _read_unmarked(self, first: CallsReader) -> Steps[None]:
        """Calls without a marker, unless the text goes on with something else than a call."""
        stream = self._reading.stream
        stream.record()
        yield from stream.skip_space()
        yield from first(self._reading, "")
        self._reading.release()

    def _at_marker(self, marker: str) -> Steps[str | None]:
        """Handle what `marker` begins; the marker that ended it, where that one begins something else."""
        reading, thought = self._reading, self._thought
        if thought is not None and marker in thought.opens:
            if thought.anywhere or not reading.out.has_text:
                return (yield from self._read_thought(marker))
            reading.out.text(marker)
        elif marker in self._openers:
            reading.stream.record(marker)
            yield from self._read_calls(reading, marker)
        elif marker not in self._ignored:
            # A closing marker alone: before any text it closes the thought that was not had, later it is text.
            if reading.out.has_text or not reading.split_thoughts:
                reading.out.text(marker)
            else:
                reading.out.close_thought()
        return None

    def _read_thought(self, opener: str) -> Steps[str | None]:
        """A thought behind its opening marker; the marker that ended it, if that was not its closing one."""
        reading, thought = self._reading, self._thought
        assert thought is not None
        split = reading.split_thoughts
        if split:
            reading.out.open_thought()
        else:
            reading.out.text(opener)
        ends = tuple(end for end in thought.ends if end in self._openers or end in self._ignored)
        marker = yield from reading.stream.until(marker_set(*thought.closes, *ends), reading.out.text)
        if marker is None:
            return None
        if split:
            reading.out.close_thought()
        elif marker in thought.closes:
            reading.out.text(marker)
        return marker if marker in ends else None
