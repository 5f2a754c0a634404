"""JSON values inside a stream of text: where they end, without waiting for the end to pass them on.

Not a validator. A value is followed by its brackets and quotes, so what a model got wrong inside of it (a bare word, a
comma too many) is passed on as it is; a bracket that closes nothing, or a character that no JSON value has outside of
a string, ends it as malformed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final

from jan_serve.chat.text_stream import Sink, Steps, TextStream

MAX_DEPTH: Final = 512
"""Nesting beyond this is malformed: no reader of arguments takes it, and a runaway model writes it."""

_STRING_TEXT: Final = re.compile(r'[^"\\]*')
_BETWEEN: Final = re.compile(r"[\s\w,:.+\-]*")
_SCALAR: Final = re.compile(r"[\w.+\-]*")
_CLOSERS: Final = {"{": "}", "[": "]"}


def copy_json(stream: TextStream, sink: Sink) -> Steps[bool]:
    """Read one value; its text goes to `sink` as it comes. False where it is malformed or the text ends."""
    first = yield from stream.peek(1)
    if first == '"':
        return (yield from _copy_string(stream, sink))
    if first in _CLOSERS:
        return (yield from _copy_nested(stream, sink))
    return (yield from _copy_scalar(stream, sink))


def read_json(stream: TextStream) -> Steps[str | None]:
    """Read one value and return its text; None where it is malformed or the text ends."""
    pieces: list[str] = []
    whole = yield from copy_json(stream, pieces.append)
    return "".join(pieces) if whole else None


def read_json_string(stream: TextStream) -> Steps[str | None]:
    """Read a string and return its value; None where there is none, or a malformed one."""
    if (yield from stream.peek(1)) != '"':
        return None
    text = yield from read_json(stream)
    return json_string_value(text) if text is not None else None


def json_string_value(text: str) -> str | None:
    """The value of a JSON string; None for any other text. Control characters in it are taken as they are."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def json_escaped(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string. Escaping piece by piece gives the same."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _copy_string(stream: TextStream, sink: Sink) -> Generator[None, None, bool]:
    sink((yield from stream.take(1)))
    while True:
        yield from stream.run(_STRING_TEXT, sink)
        mark = yield from stream.take(1)
        if mark == "\\":
            mark += yield from stream.take(1)
        sink(mark)
        if mark in ('"', "", "\\"):  # "" and a lone backslash: the text ended
            return mark == '"'


def _copy_scalar(stream: TextStream, sink: Sink) -> Steps[bool]:
    pieces: list[str] = []

    def keep(text: str) -> None:
        pieces.append(text)
        sink(text)

    yield from stream.run(_SCALAR, keep)
    return bool(pieces)


def _copy_nested(stream: TextStream, sink: Sink) -> Steps[bool]:
    closers: list[str] = []
    while True:
        mark = yield from stream.peek(1)
        if mark == '"':
            if not (yield from _copy_string(stream, sink)):
                return False
        elif mark in _CLOSERS:
            if len(closers) == MAX_DEPTH:
                return False
            closers.append(_CLOSERS[mark])
            sink((yield from stream.take(1)))
        elif closers and mark == closers[-1]:
            closers.pop()
            sink((yield from stream.take(1)))
        else:
            return False
        if not closers:
            return True
        yield from stream.run(_BETWEEN, sink)
