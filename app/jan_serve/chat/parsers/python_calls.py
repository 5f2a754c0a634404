"""Reads calls that are written as in Python: `[name(key='value', other=[1, 2]), …]`. Nothing is evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jan_serve.chat.formats.format import Reading
from jan_serve.chat.json_stream import json_escaped
from jan_serve.chat.literals import copy_literal
from jan_serve.chat.parsers.json_calls import JsonCalls
from jan_serve.chat.parsers.marked import CallsReader
from jan_serve.chat.text_stream import Steps
from jan_serve.text.markers import marker_set

_NAME: Final = re.compile(r"[\w.\-]*")
_KEY: Final = re.compile(r"\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCalls:
    """How the calls are embedded.

    closers: what ends the calls. suffix: what may stand between name and bracket. known_only: a call of something that
    is no tool of the request is text. or_json: how to read JSON objects in place of calls.
    """

    closers: tuple[str, ...] = ()
    suffix: str = ""
    known_only: bool = False
    or_json: JsonCalls | None = None

    def reader(self) -> CallsReader:
        """The function that reads them."""

        def read(reading: Reading, marker: str) -> Steps[None]:
            return _read_calls(reading, self, marker)

        return read


def _read_calls(reading: Reading, form: PythonCalls, marker: str) -> Steps[None]:
    stream = reading.stream
    yield from stream.skip_space()
    in_list = (yield from stream.accept("[")) is not None
    yield from stream.skip_space()
    if form.or_json is not None and (yield from stream.peek(1)) == "{":
        yield from form.or_json.reader()(reading, "[" if in_list else marker)
        return
    any_call = False
    while not any_call or (in_list and (yield from stream.accept(","))):
        yield from stream.skip_space()
        if not (yield from _read_call(reading, form)):
            reading.release()
            return
        any_call = True
        stream.record()
        yield from stream.skip_space()
    if in_list:
        yield from stream.accept("]")
        yield from stream.skip_space()
    stream.recorded()
    yield from stream.accept(*form.closers)


def _read_call(reading: Reading, form: PythonCalls) -> Steps[bool]:
    """`name(…)`. False where it is no call: then nothing was announced."""
    stream, out = reading.stream, reading.out
    pieces: list[str] = []
    yield from stream.run(_NAME, pieces.append)
    name = "".join(pieces)
    if form.suffix:
        name = name.removesuffix(form.suffix)
    if not name or (form.known_only and name not in reading.tools) or not (yield from stream.accept("(")):
        return False
    reading.open_call(name)
    out.arguments("{")
    if (yield from _read_arguments(reading)):
        out.arguments("}")
    elif form.closers and not stream.at_end:
        yield from stream.until(marker_set(*form.closers), out.arguments)
    return True


def _read_arguments(reading: Reading) -> Steps[bool]:
    """Keyword arguments up to the closing bracket. False where they are malformed or the text ends."""
    stream, out = reading.stream, reading.out
    first = True
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(")")):
            return True
        key: list[str] = []
        yield from stream.run(_KEY, key.append)
        yield from stream.skip_space()
        if not key or not (yield from stream.accept("=")):
            if not stream.at_end:
                out.arguments("".join(key))
            return False
        yield from stream.skip_space()
        out.arguments(f'{"" if first else ", "}"{json_escaped("".join(key))}": ')
        first = False
        if not (yield from copy_literal(stream, out.arguments)):
            return False
        yield from stream.skip_space()
        if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != ")":
            return False
