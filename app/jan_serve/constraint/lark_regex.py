"""Expressions as one regular expression of Lark.

llguidance takes about as long to read one symbol of Lark as to read a whole class within a regular expression.
"""

from __future__ import annotations

import re
from typing import Final

from jan_serve.constraint.ast import CharClass, Choice, Expr, Literal, Repeat, Sequence
from jan_serve.constraint.lark_quoting import bounds, code, quote_class

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
    if type(expr) is Choice:
        return _joined("|", expr.items, groups)
    return _sequence(expr, groups)


def _sequence(expr: Expr, groups: int) -> str | None:
    if type(expr) is Sequence and expr.items:
        return _joined("", expr.items, groups)
    return _item(expr, groups)


def _joined(separator: str, items: tuple[Expr, ...], groups: int) -> str | None:
    write = _sequence if separator else _item
    parts: list[str] = []
    for item in items:
        part = write(item, groups)
        if part is None:
            return None
        parts.append(part)
    return separator.join(parts)


def _item(expr: Expr, groups: int) -> str | None:
    if type(expr) is Literal:
        return "".join(map(code, map(ord, expr.text))) or None
    if type(expr) is CharClass:
        text = quote_class(expr.chars)
        return text[1:-1] if text[0] == "/" and len(text) <= _MAX_CLASS else None
    if groups >= _MAX_GROUPS:
        return None
    if type(expr) is Repeat:
        if type(expr.item) is CharClass:
            part = _item(expr.item, groups)
            return None if part is None else part + bounds(expr)
        part = _alternatives(expr.item, groups + 1)
        return None if part is None else f"({part}){bounds(expr)}"
    if type(expr) is Sequence or type(expr) is Choice:
        part = _alternatives(expr, groups + 1)
        return None if part is None else f"({part})"
    return None
