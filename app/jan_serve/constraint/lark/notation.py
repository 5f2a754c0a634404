"""This module writes texts, character classes, counts, regular expressions and layouts as llguidance's Lark has them.
llguidance takes about as long to read one symbol of Lark as to read a whole class within a regular expression. Layouts
are parametric rules: the parameter holds the layout and the number of open brackets. llguidance completes a rule for
every parameter that it has at the same position. So a position must determine the parameter of each rule. Compact
texts may begin as spaced ones, so up to their first colon or comma they have rules of their own; the layouts with
lines are told apart by terminals before the first parametric rule."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from jan_serve.constraint.ast import Brackets, CharClass, Choice, Expr, Literal, Mark, Repeat, Sequence, Until
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet, complement
from jan_serve.constraint.layout import COMPACT, INDENTED, SPACED, Layout

LAZY: Final = "[lazy]"
"""Follows the name of a rule that ends with its first text."""


def spelled_out(text: str) -> str:
    """The body of a rule for exactly this text, one character a terminal."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
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
    return [(a, b) for a, b in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)) if a <= b]


def _codes(text: str) -> str:
    return "".join(map(code, map(ord, text)))


def code(point: int) -> str:
    """A code point in a regular expression."""
    c = chr(point)
    return c if c.isascii() and c.isalnum() else f"\\x{{{point:x}}}"


_MAX_GROUPS: Final = 20
"""Groups within one another; the parser of llguidance's expressions has a limit too."""
_MAX_CLASS: Final = 60
"""A longer class has a name, so it is in no expression."""
_ATOM: Final = re.compile(r'"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/|[A-Za-z_]\w*')


def is_atom(text: str) -> bool:
    """Whether a printed text is a single symbol of Lark: it needs no group around it."""
    return _ATOM.fullmatch(text) is not None


def quote_regex(expr: Expr) -> str | None:
    """A repetition, sequence or choice of texts and classes; None if it has other parts, or is deep."""
    body = _alternatives(expr, 0)
    return None if body is None else f"/{body}/"


def _alternatives(expr: Expr, groups: int) -> str | None:
    return _joined("|", expr.items, groups) if type(expr) is Choice else _sequence(expr, groups)


def _sequence(expr: Expr, groups: int) -> str | None:
    if type(expr) is Sequence and expr.items:
        return _joined("", expr.items, groups)
    return _item(expr, groups)


def _joined(separator: str, items: tuple[Expr, ...], groups: int) -> str | None:
    write = _sequence if separator else _item
    parts = [write(item, groups) for item in items]
    return None if None in parts else separator.join(filter(None, parts))


def _item(expr: Expr, groups: int) -> str | None:
    if type(expr) is Literal:
        return "".join(map(code, map(ord, expr.text))) or None
    if type(expr) is CharClass:
        text = quote_class(expr.chars)
        return text[1:-1] if text[0] == "/" and len(text) <= _MAX_CLASS else None
    if groups >= _MAX_GROUPS:
        return None
    if type(expr) is Repeat:
        is_class = type(expr.item) is CharClass
        part = _item(expr.item, groups) if is_class else _group(expr.item, groups)
        return None if part is None else part + bounds(expr)
    return _group(expr, groups) if type(expr) is Sequence or type(expr) is Choice else None


def _group(expr: Expr, groups: int) -> str | None:
    part = _alternatives(expr, groups + 1)
    return None if part is None else f"({part})"


PARAMETER: Final = "::_"
"""Between the name of a parametric rule and the colon."""
LAYOUT_BITS: Final = 19
"""Bits of the parameter for the layout; other rules may have the rest."""
_DEPTH: Final = "[0:16]"
ALWAYS: Final = " %if ge(_, 0)"
"""Ends a rule that is the only one of its name and goes deeper: llguidance (1.9) would put it in the place of its name,
and panics where the rule leads back to itself."""
_LAYOUT: Final = "[16:19]"
DEEPER: Final = "incr(_)"
"""One bracket more. Up to 65,535 of them it is the same as `incr([0:16])`, which llguidance reads in twice the time."""
_NUMBERS: Final = {layout.name: number for number, layout in enumerate((COMPACT, SPACED, *INDENTED))}
_BRACKETS: Final = {"{": "brace", "}": "brace", "[": "bracket", "]": "bracket"}

_IS_COMPACT: Final = f"%if eq({_LAYOUT}, {_NUMBERS[COMPACT.name]})"
_IS_SPACED: Final = f"%if eq({_LAYOUT}, {_NUMBERS[SPACED.name]})"
_HAS_SPACES: Final = f"%if ge({_LAYOUT}, {_NUMBERS[SPACED.name]})"
_NO_LINES: Final = f"%if le({_LAYOUT}, {_NUMBERS[SPACED.name]})"
_LINES: Final = f"%if ge({_LAYOUT}, {_NUMBERS[INDENTED[0].name]})"


def is_indented(lark: str) -> bool:
    """Whether a printed grammar has layouts with lines."""
    return HELPERS[-1] in lark


def first_argument(layout: Layout) -> str:
    """The parameter within the first brackets."""
    return hex(_NUMBERS[layout.name] << 16 | 1)


def mark_rule(mark: Mark) -> str:
    """The text of a mark in a parametric rule."""
    return "layout_comma::_" if mark.text == "," else "layout_colon::_"


def opening_rule(brackets: Brackets) -> str:
    """The opening bracket and the line break after it."""
    return f"layout_open_{_BRACKETS[brackets.opening]}::_"


def closing_rule(brackets: Brackets) -> str:
    return f"layout_close_{_BRACKETS[brackets.closing]}::_"


_UNITS: Final = (f"{spelled_out(own.unit or '')} %if eq({_LAYOUT}, {_NUMBERS[own.name]})" for own in INDENTED)
# No rule is empty under a condition: llguidance takes it for empty always. The recursion is on the right, where each
# level begins at another position.
HELPERS: Final = (
    f'layout_comma::_: "," {_IS_COMPACT} | "," " " {_IS_SPACED} | "," layout_line::_ {_LINES}',
    f'layout_colon::_: ":" {_IS_COMPACT} | ":" " " {_HAS_SPACES}',
    *(
        f'layout_open_{name}::_: "{bracket}" {_NO_LINES} | "{bracket}" layout_line::{DEEPER} {_LINES}'
        for bracket, name in (("{", "brace"), ("[", "bracket"))
    ),
    *(
        f'layout_close_{name}::_: "{bracket}" {_NO_LINES} | layout_line::_ "{bracket}" {_LINES}'
        for bracket, name in (("}", "brace"), ("]", "bracket"))
    ),
    f'layout_line::_: "\\n" %if is_zeros({_DEPTH}) | "\\n" layout_indentation::_ %if ge({_DEPTH}, 1)',
    f"layout_indentation::_: layout_unit::_ %if eq({_DEPTH}, 1)"
    f" | layout_unit::_ layout_indentation::decr({_DEPTH}) %if ge({_DEPTH}, 2)",
    f"layout_unit::_: {' | '.join(_UNITS)}",
)
"""Definitions that parametric rules refer to."""
