"""Reads calls that are a bare name followed by the arguments as JSON, with markers around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jan_serve.chat.formats.format import Reading
from jan_serve.chat.json_stream import copy_json
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import CallsReader
from jan_serve.chat.text_stream import Steps, discard
from jan_serve.text.markers import marker_set

_NAME: Final = re.compile(r"[\w.\-:/]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCalls:
    """What stands around name and arguments.

    before: literals that may stand before the name. id_before: a literal that stands between the model's own id for the
    call and the name. name: what of the name is the tool's (its first group).
    call_id: a literal that is followed by the model's own id for the call. arguments: literals of which one stands
    before the arguments; it may be missing. fence: literals that may stand around the JSON, like those of a code block.
    closers: what may stand behind the arguments. known_only: a name that is no tool of the request makes it text.
    or_json: how to read a JSON object or array in place of a name.
    """

    before: tuple[str, ...] = ()
    id_before: str | None = None
    name: re.Pattern[str] = re.compile(r"(.+)")
    call_id: str | None = None
    arguments: tuple[str, ...] = ()
    fence: tuple[str, str] | None = None
    closers: tuple[str, ...] = ()
    known_only: bool = False
    or_json: JsonCalls | None = None

    def reader(self) -> CallsReader:
        """The function that reads one call."""
        read_json = self.or_json.reader() if self.or_json is not None else None

        def read(reading: Reading, marker: str) -> Steps[None]:
            stream = reading.stream
            yield from stream.skip_space()
            if read_json is not None and (yield from stream.peek(1)) in ("{", "["):
                yield from read_json(reading, marker)
                return
            name = yield from _read_head(reading, self)
            if name is None:
                reading.release()
                return
            yield from _read_arguments(reading, self, name)

        return read


def _read_head(reading: Reading, form: NamedCalls) -> Steps[str | None]:
    """The tool's name, with the stream at the arguments; None where this is no call."""
    stream = reading.stream
    yield from stream.accept(*form.before)
    if form.id_before is not None:
        yield from stream.run(_NAME, discard)
        yield from stream.accept(form.id_before)
    pieces: list[str] = []
    yield from stream.run(_NAME, pieces.append)
    match = form.name.fullmatch("".join(pieces))
    if match is None or (form.known_only and match.group(1) not in reading.tools):
        return None
    yield from stream.skip_space()
    if form.call_id is not None and (yield from stream.accept(form.call_id)):
        yield from stream.run(_NAME, discard)
    yield from stream.accept(*form.arguments)
    yield from stream.skip_space()
    if form.fence is not None and (yield from stream.accept(form.fence[0])):
        yield from stream.skip_space()
    return match.group(1)


def _read_arguments(reading: Reading, form: NamedCalls, name: str) -> Steps[None]:
    stream, out = reading.stream, reading.out
    if (yield from stream.peek(1)) != "{":
        if (yield from stream.accept(*form.closers)) is None:
            reading.release()
            return
        reading.open_call(name)
        out.arguments("{}")
        return
    reading.open_call(name)
    if (yield from copy_json(stream, out.arguments)):
        yield from stream.skip_space()
        if form.fence is not None and (yield from stream.accept(form.fence[1])):
            yield from stream.skip_space()
        yield from stream.accept(*form.closers)
    elif form.closers and not stream.at_end:
        # Broken JSON is passed on up to its end: whoever parses it sees what was wrong.
        yield from stream.until(marker_set(*form.closers), out.arguments)
