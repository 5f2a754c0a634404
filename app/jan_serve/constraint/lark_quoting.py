"""Texts, character classes and counts as llguidance's Lark writes them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from jan_serve.constraint.ast import Repeat, Until
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet, complement

_SURROGATES = ((0xD800, 0xDFFF),)


LAZY: Final = "[lazy]"
"""After the name of a rule that ends with its first text."""


def spelled_out(text: str) -> str:
    """The body of a rule for exactly this text, one character a terminal."""
    if _is_plain(text):
        return '"' + '" "'.join(text) + '"'
    return " ".join([quote_literal(c) for c in text])


def bounds(expr: Repeat) -> str:
    """The suffix of a repeated item."""
    if expr.high is None and expr.low <= 1:
        return "+" if expr.low else "*"
    if (expr.low, expr.high) == (0, 1):
        return "?"
    return f"{{{expr.low},{'' if expr.high is None else expr.high}}}"


class _Escapes(dict[int, str]):
    """Spellings of characters in quotes, by code point."""

    def __missing__(self, code: int) -> str:
        return f"\\u{code:04x}" if code < 0x20 or 0x7F <= code <= 0xFFFF else chr(code)


_ESCAPES: Final = _Escapes(
    {code: chr(code) for code in range(0x20, 0x7F)}
    | {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
)


def quote_literal(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def quote_until(expr: Until) -> str:
    """The body of a lazy rule, which ends with the first `stop`."""
    stop = _codes(expr.stop)
    body = f"/(?s:.{{{expr.low},{'' if expr.high is None else expr.high}}}){stop}/"
    # Lazy is up to the first text of the body: one that is shorter than `low` is none.
    if expr.low:
        body = f"{body} & ~/(?s:.{{0,{expr.low - 1}}}){stop}(?s:.+)/"
    if expr.section is None:
        return body
    opening, closing = map(_codes, expr.section)
    body = f"{body} & ~/{opening}(?s:.*)/"
    if not closing:
        return body
    begun = f"{opening}(?s:.*){closing}"
    return f"({body}) | (/{begun}{stop}/ & ~/{begun}(?s:.+){stop}/)"


def quote_before(expr: Until) -> str:
    """The body of a terminal for what stands before the `special` of a text, if that is a token. A greedy one: no text
    goes on with a control token."""
    begun = _codes(expr.stop.removesuffix(expr.special))
    low = expr.low if begun else max(expr.low, 1)
    high = "" if expr.high is None else max(expr.high, low)
    body = f"/(?s:.{{{low},{high}}}){begun}/ & ~/(?s:.*){_codes(expr.stop)}(?s:.*)/"
    return body if expr.section is None else f"{body} & ~/{_codes(expr.section[0])}(?s:.*)/"


@lru_cache(maxsize=1024)
def quote_class(chars: CharSet) -> str:
    """A Lark regular expression for one character of the set."""
    prefix = "/["
    if chars[-1][1] == MAX_CODE_POINT and chars != ((0, MAX_CODE_POINT),):
        prefix, chars = "/[^", complement(chars)
    ranges = [part for low, high in chars for part in _without_surrogates(low, high)]
    if not ranges:
        return "/(?s:.)/" if prefix == "/[^" else '"\\ud800"'
    body = "".join(code(low) if low == high else f"{code(low)}-{code(high)}" for low, high in ranges)
    return f"{prefix}{body}]/"


def _without_surrogates(low: int, high: int) -> list[tuple[int, int]]:
    """The parts of a range that text can hold; the regex engine knows no surrogates."""
    first, last = _SURROGATES[0]
    return [(a, b) for a, b in ((low, min(high, first - 1)), (max(low, last + 1), high)) if a <= b]


def _codes(text: str) -> str:
    return "".join(map(code, map(ord, text)))


def code(point: int) -> str:
    """A code point in a regular expression."""
    c = chr(point)
    return c if c.isascii() and c.isalnum() else f"\\x{{{point:x}}}"
