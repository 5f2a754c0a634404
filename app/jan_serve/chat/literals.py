"""Values that are written almost as JSON (Python literals, Gemma's own notation), turned into JSON text as they come.

What is JSON stays as it is; `'…'` becomes `"…"`, True/False/None become true/false/null, a tuple becomes an array,
and a bare word a string. Nothing is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jan_serve.chat.json_stream import json_escaped
from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.markers import marker_set

MAX_DEPTH: Final = 64
"""Nesting beyond this is malformed. Reading recurses, so it stays far below Python's own limit."""

_WORD: Final = re.compile(r"[^\s,:\[\](){}'\"<]*")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_ESCAPES: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "0": "\0",
    "\n": "",
}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class LiteralSyntax:
    """A notation. quotes: delimiters of strings with backslash escapes. raw_quote: of strings without escapes."""

    quotes: tuple[str, ...] = ("'", '"')
    raw_quote: str | None = None


PYTHON: Final = LiteralSyntax()
GEMMA: Final = LiteralSyntax(quotes=(), raw_quote='<|"|>')


def copy_literal(
    stream: TextStream, sink: Sink, syntax: LiteralSyntax = PYTHON, depth: int = 0
) -> Steps[bool]:
    """Read one value; its JSON goes to `sink` as it comes. False where it is malformed or the text ends.

    An object's members are written as `"k": v, …` and an array's as `v, …`, like Python's json does.
    """
    mark = yield from stream.peek(1)
    if depth > MAX_DEPTH or mark == "":
        return False
    if mark == "{":
        return (yield from _copy_object(stream, sink, syntax, depth))
    if mark in ("[", "("):
        return (yield from _copy_array(stream, sink, syntax, depth))
    quoted = yield from copy_quoted(stream, sink, syntax)
    if quoted is not None:
        return quoted
    return (yield from _copy_word(stream, sink))


def copy_quoted(stream: TextStream, sink: Sink, syntax: LiteralSyntax) -> Steps[bool | None]:
    """Read a string as a JSON string. None, and nothing read, where there is no string; False where it does not end."""
    if syntax.raw_quote is not None and (yield from stream.accept(syntax.raw_quote)):
        sink('"')
        end = yield from stream.until(
            marker_set(syntax.raw_quote), lambda text: sink(json_escaped(text)), cut_off=discard
        )
        if end is not None:
            sink('"')
        return end is not None
    quote = yield from stream.accept(*syntax.quotes)
    if quote is None:
        return None
    sink('"')
    marks = marker_set(quote, "\\")
    while True:
        mark = yield from stream.until(marks, lambda text: sink(json_escaped(text)))
        if mark == quote:
            sink('"')
            return True
        if mark is None or not (yield from _copy_escape(stream, sink)):
            return False


def _copy_escape(stream: TextStream, sink: Sink) -> Steps[bool]:
    """What follows a backslash in a Python string; an escape that Python does not know keeps its backslash."""
    kind = yield from stream.take(1)
    if kind == "":
        return False
    if kind in _HEX_DIGITS:
        digits = yield from stream.take(_HEX_DIGITS[kind])
        if len(digits) < _HEX_DIGITS[kind]:
            return False
        try:
            code = int(digits, 16)
        except ValueError:
            sink(json_escaped("\\" + kind + digits))
            return True
        # Half of a surrogate pair is written as an escape: it is no character of its own.
        if 0xD800 <= code < 0xE000:
            sink(f"\\u{code:04x}")
        else:
            sink(json_escaped(chr(code) if code < 0x110000 else "\ufffd"))
        return True
    if kind in ("'", '"', "\\"):
        sink(json_escaped(kind))
    else:
        sink(json_escaped(_ESCAPES.get(kind, "\\" + kind)))
    return True


def _copy_object(stream: TextStream, sink: Sink, syntax: LiteralSyntax, depth: int) -> Steps[bool]:
    sink((yield from stream.take(1)))
    first = True
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept("}")):
            sink("}")
            return True
        if not first:
            sink(", ")
        first = False
        if not (yield from _copy_key(stream, sink, syntax)):
            return False
        yield from stream.skip_space()
        if not (yield from stream.accept(":")):
            return False
        sink(": ")
        yield from stream.skip_space()
        if not (yield from copy_literal(stream, sink, syntax, depth + 1)):
            return False
        yield from stream.skip_space()
        if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != "}":
            return False


def _copy_key(stream: TextStream, sink: Sink, syntax: LiteralSyntax) -> Steps[bool]:
    quoted = yield from copy_quoted(stream, sink, syntax)
    if quoted is not None:
        return quoted
    pieces: list[str] = []
    yield from stream.run(_WORD, pieces.append)
    if stream.at_end:
        return False
    sink(f'"{json_escaped("".join(pieces))}"')
    return bool(pieces)


def _copy_array(stream: TextStream, sink: Sink, syntax: LiteralSyntax, depth: int) -> Steps[bool]:
    closer = "]" if (yield from stream.take(1)) == "[" else ")"
    sink("[")
    first = True
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(closer)):
            sink("]")
            return True
        if not first:
            sink(", ")
        first = False
        if not (yield from copy_literal(stream, sink, syntax, depth + 1)):
            return False
        yield from stream.skip_space()
        if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != closer:
            return False


def _copy_word(stream: TextStream, sink: Sink) -> Steps[bool]:
    pieces: list[str] = []
    yield from stream.run(_WORD, pieces.append)
    word = "".join(pieces)
    if not word or stream.at_end:
        return False  # at the end it may be the beginning of another word
    if _NUMBER.fullmatch(word):
        sink(word)
    elif word in _WORDS:
        sink(_WORDS[word])
    else:
        sink(f'"{json_escaped(word)}"')
    return True


def literal_to_json(text: str, syntax: LiteralSyntax = PYTHON) -> str | None:
    """The JSON of a whole value; None where `text` is not one."""
    stream = TextStream()
    stream.feed(text)
    stream.close()
    pieces: list[str] = []
    reading = copy_literal(stream, pieces.append, syntax)
    try:
        next(reading)
    except StopIteration as result:
        return "".join(pieces) if result.value and stream.at_end else None
    raise AssertionError("a closed stream never waits")
