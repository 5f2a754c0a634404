"""Finds the end of JSON values inside a text stream, passes their text on as it arrives, and writes objects; converts
values close to JSON (Python literals, Gemma's notation) to JSON on the way.

Not a validator. JSON is tracked by its brackets and quotes, so a model's mistake inside it (a bare word, an extra
comma) passes unchanged; a mismatched bracket, or a character that JSON allows only in strings, makes it malformed. Of
literals, JSON stays unchanged; `'…'` becomes `"…"`, True/False/None become true/false/null, a tuple becomes an array,
and a bare word becomes a string. Of a name that an object repeats, the first value counts. Nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

import msgspec

from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.markers import marker_set
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


MAX_LITERAL_DEPTH: Final = 64
"""Deeper nesting is malformed. Reading recurses, so this is far below Python's recursion limit."""

_WORD: Final = re.compile(r"[^\s,:\[\](){}'\"<]*")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_ESCAPES: Final = dict(n="\n", t="\t", r="\r", b="\b", f="\f", a="\a", v="\v") | {"0": "\0", "\n": ""}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


class LiteralSyntax(msgspec.Struct, frozen=True):
    """quotes: delimiters of strings with backslash escapes. raw_quote: delimiter of strings without escapes. escaped:
    characters that stand for themselves after a backslash."""

    quotes: tuple[str, ...] = ("'", '"')
    raw_quote: str | None = None
    escaped: str = "'\"\\"


PYTHON: Final = LiteralSyntax()
JSON: Final = LiteralSyntax(quotes=('"',), escaped='"\\/')
GEMMA: Final = LiteralSyntax(quotes=(), raw_quote='<|"|>')


def copy_literal(
    stream: TextStream, sink: Sink, syntax: LiteralSyntax = PYTHON, depth: int = 0
) -> Steps[bool]:
    """Read one value, passing its JSON to `sink` as it arrives. False if it is malformed or the text ends. Spacing is
    that of Python's json: `"k": v, …` in objects and `v, …` in arrays."""
    char = yield from stream.peek(1)
    if depth > MAX_LITERAL_DEPTH or char == "":
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
    word = _PYTHON_WORDS.get(word, word)
    is_json = word in _PYTHON_WORDS.values() or _NUMBER.fullmatch(word)
    sink(word if is_json else f'"{json_escaped(word)}"')
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
