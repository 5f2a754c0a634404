"""Converts values close to JSON (Python literals, Gemma's notation) to JSON text as they arrive.

JSON stays unchanged; `'…'` becomes `"…"`, True/False/None become true/false/null, a tuple becomes an array, and a bare
word becomes a string. Of a name that an object repeats, the first value counts. Nothing is evaluated.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from jan_serve.chat.json_stream import ObjectWriter, json_escaped
from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.markers import marker_set

MAX_DEPTH: Final = 64
"""Deeper nesting is malformed. Reading recurses, so this is far below Python's recursion limit."""

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


class LiteralSyntax(msgspec.Struct, frozen=True):
    """quotes: delimiters of strings with backslash escapes. raw_quote: delimiter of strings without escapes.

    escaped: characters that stand for themselves after a backslash.
    """

    quotes: tuple[str, ...] = ("'", '"')
    raw_quote: str | None = None
    escaped: str = "'\"\\"


PYTHON: Final = LiteralSyntax()
JSON: Final = LiteralSyntax(quotes=('"',), escaped='"\\/')
GEMMA: Final = LiteralSyntax(quotes=(), raw_quote='<|"|>')


def copy_literal(
    stream: TextStream, sink: Sink, syntax: LiteralSyntax = PYTHON, depth: int = 0
) -> Steps[bool]:
    """Read one value, passing its JSON to `sink` as it arrives. False if it is malformed or the text ends.

    Spacing is that of Python's json: `"k": v, …` in objects and `v, …` in arrays.
    """
    char = yield from stream.peek(1)
    if depth > MAX_DEPTH or char == "":
        return False
    if char == "{":
        return (yield from _copy_object(stream, sink, syntax, depth))
    if char in ("[", "("):
        return (yield from _copy_array(stream, sink, syntax, depth))
    quoted = yield from copy_quoted(stream, sink, syntax)
    if quoted is not None:
        return quoted
    return (yield from _copy_word(stream, sink))


def copy_quoted(stream: TextStream, sink: Sink, syntax: LiteralSyntax) -> Steps[bool | None]:
    """Read a string as a JSON string. None, with nothing read, if no string starts here; False if it does not end."""
    if syntax.raw_quote is not None and (yield from stream.accept(syntax.raw_quote)):
        sink('"')
        end = yield from stream.read_until(
            marker_set(syntax.raw_quote), lambda text: sink(json_escaped(text)), cut_off=discard
        )
        if end is not None:
            sink('"')
        return end is not None
    quote = yield from stream.accept(*syntax.quotes)
    if quote is None:
        return None
    sink('"')
    markers = marker_set(quote, "\\")
    while True:
        marker = yield from stream.read_until(markers, lambda text: sink(json_escaped(text)))
        if marker == quote:
            sink('"')
            return True
        if marker is None or not (yield from _copy_escape(stream, sink, syntax)):
            return False


def _copy_escape(stream: TextStream, sink: Sink, syntax: LiteralSyntax) -> Steps[bool]:
    """Read the rest of an escape, after its backslash. An unknown escape keeps its backslash."""
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
        # Half of a surrogate pair is not a character, so it stays an escape.
        if 0xD800 <= code < 0xE000:
            sink(f"\\u{code:04x}")
        else:
            sink(json_escaped(chr(code) if code < 0x110000 else "\ufffd"))
        return True
    if kind in syntax.escaped:
        sink(json_escaped(kind))
    else:
        sink(json_escaped(_ESCAPES.get(kind, "\\" + kind)))
    return True


def _copy_object(stream: TextStream, sink: Sink, syntax: LiteralSyntax, depth: int) -> Steps[bool]:
    sink((yield from stream.take(1)))
    members = ObjectWriter(sink)
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept("}")):
            sink("}")
            return True
        key = yield from _read_key(stream, syntax)
        if key is None:
            return False
        value = members.begin(key)
        yield from stream.skip_space()
        if not (yield from stream.accept(":")):
            return False
        value(": ")
        yield from stream.skip_space()
        if not (yield from copy_literal(stream, value, syntax, depth + 1)):
            return False
        yield from stream.skip_space()
        if not (yield from stream.accept(",")) and (yield from stream.peek(1)) != "}":
            return False


def _read_key(stream: TextStream, syntax: LiteralSyntax) -> Steps[str | None]:
    """Read a key as a JSON string. None if there is none, or the text ends in it."""
    pieces: list[str] = []
    quoted = yield from copy_quoted(stream, pieces.append, syntax)
    if quoted is not None:
        return "".join(pieces) if quoted else None
    word = yield from stream.take_matching(_WORD)
    return f'"{json_escaped(word)}"' if word and not stream.at_end else None


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
    word = yield from stream.take_matching(_WORD)
    if not word or stream.at_end:
        return False  # at the end, the word may be cut off
    if _NUMBER.fullmatch(word):
        sink(word)
    elif word in _WORDS:
        sink(_WORDS[word])
    else:
        sink(f'"{json_escaped(word)}"')
    return True


def is_word(text: str) -> bool:
    """Whether a text is read as one bare word, such as a key without quotes."""
    return bool(text) and _WORD.fullmatch(text) is not None


class LiteralStart(NamedTuple):
    """The JSON of a text as far as it is a value. whole: it is exactly one."""

    json: str
    whole: bool


def literal_start(text: str, syntax: LiteralSyntax = PYTHON) -> LiteralStart:
    stream = TextStream()
    stream.feed(text)
    stream.close()
    pieces: list[str] = []
    steps = copy_literal(stream, pieces.append, syntax)
    try:
        next(steps)
    except StopIteration as result:
        return LiteralStart("".join(pieces), bool(result.value) and stream.at_end)
    raise AssertionError("a closed stream never waits")


def literal_to_json(text: str, syntax: LiteralSyntax = PYTHON) -> str | None:
    """The JSON of `text`; None if it is not exactly one value."""
    found = literal_start(text, syntax)
    return found.json if found.whole else None
