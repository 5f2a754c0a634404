"""Finds the end of JSON values inside a text stream, passes their text on as it arrives, and writes objects.

Not a validator. A value is tracked by its brackets and quotes, so a model's mistake inside it (a bare word, an extra
comma) passes unchanged; a mismatched bracket, or a character that JSON allows only in strings, makes it malformed.
"""

from __future__ import annotations

import json
import re
from typing import Final

from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.valid_text import valid_text

MAX_DEPTH: Final = 512
"""Deeper nesting is malformed: no client parses it, and only a runaway model writes it."""

_STRING_TEXT: Final = re.compile(r'[^"\\]*')
_BETWEEN: Final = re.compile(r"[\s\w,:.+\-]*")
_SCALAR: Final = re.compile(r"[\w.+\-]*")
_CLOSERS: Final = {"{": "}", "[": "]"}


def copy_json(stream: TextStream, sink: Sink) -> Steps[bool]:
    """Read one value, passing its text to `sink` as it arrives. False if it is malformed or the text ends."""
    first = yield from stream.peek(1)
    if first == '"':
        return (yield from _copy_string(stream, sink))
    if first in _CLOSERS:
        return (yield from _copy_nested(stream, sink))
    return (yield from _copy_scalar(stream, sink))


def read_json(stream: TextStream) -> Steps[str | None]:
    """Read one value and return its text; None if it is malformed or the text ends."""
    pieces: list[str] = []
    whole = yield from copy_json(stream, pieces.append)
    return "".join(pieces) if whole else None


def read_json_string(stream: TextStream, sink: Sink = discard) -> Steps[str | None]:
    """Read a string and return its value; None if there is none or it is malformed. sink: receives its text."""
    if (yield from stream.peek(1)) != '"':
        return None
    pieces: list[str] = []
    whole = yield from copy_json(stream, pieces.append)
    text = "".join(pieces)
    sink(text)
    return json_string_value(text) if whole else None


def json_string_value(text: str) -> str | None:
    """The value of a JSON string; None for any other text. Unescaped control characters are accepted."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return valid_text(value) if isinstance(value, str) else None


def json_escaped(text: str) -> str:
    """`text` escaped for a JSON string, without quotes. Escaping in pieces gives the same result."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class ObjectWriter:
    """Writes the members of one object, without its braces, for notations in which a model may write a name again.

    Spacing is that of Python's json. A name is written once, with its first value: members stream, so a client may have
    that one already.
    """

    __slots__ = ("_names", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._names: set[str | None] = set()

    def begin(self, key: str) -> Sink:
        """Begin a member with its key, a JSON string. Returns the sink of its colon and value, which drops those of a
        repeated name."""
        name = json_string_value(key)
        if name in self._names:
            return discard
        self._sink(f", {key}" if self._names else key)
        self._names.add(name)
        return self._sink


def _copy_string(stream: TextStream, sink: Sink) -> Steps[bool]:
    sink((yield from stream.take(1)))
    while True:
        yield from stream.read_matching(_STRING_TEXT, sink)
        char = yield from stream.take(1)
        if char == "\\":
            char += yield from stream.take(1)
        sink(char)
        if char in ('"', "", "\\"):  # "" and a lone backslash: the text ended
            return char == '"'


def _copy_scalar(stream: TextStream, sink: Sink) -> Steps[bool]:
    word = yield from stream.take_matching(_SCALAR)
    sink(word)
    return bool(word)


def _copy_nested(stream: TextStream, sink: Sink) -> Steps[bool]:
    closers: list[str] = []
    while True:
        char = yield from stream.peek(1)
        if char == '"':
            if not (yield from _copy_string(stream, sink)):
                return False
        elif char in _CLOSERS:
            if len(closers) == MAX_DEPTH:
                return False
            closers.append(_CLOSERS[char])
            sink((yield from stream.take(1)))
        elif closers and char == closers[-1]:
            closers.pop()
            sink((yield from stream.take(1)))
        else:
            return False
        if not closers:
            return True
        yield from stream.read_matching(_BETWEEN, sink)
