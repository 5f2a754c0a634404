"""URIs of a bounded length, as pydantic asks for them (`AnyUrl`: at most 2,083 characters).

An automaton that counts beside the format's needs 180 states for each character. So each part of the URI has a bound of
its own, which together stay within the whole: narrower than the set, never wider. IP literals and user names are left
out, and escapes by percent below 1,000 characters.
"""

from __future__ import annotations

from typing import Final

from jan_serve.constraint import charset
from jan_serve.constraint.ast import Expr, Literal, choice, optional, repeat, sequence
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.text_form import TextForm

SHORTEST: Final = 40
"""The least upper bound that leaves room for all parts."""
LARGEST_LOW: Final = 4
_SCHEME: Final = 10
_HOST: Final = 255
_PORT: Final = 5
_FRAGMENT: Final = 64
_ESCAPES_FROM: Final = 1_000
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS: Final = "0123456789"
_NAMED: Final = charset.of_chars(_LETTERS + _DIGITS + "-._~!$&'()*+,;=")
_IN_PATH: Final = charset.union(_NAMED, charset.of_chars(":@"))
_PATH: Final = charset.union(_IN_PATH, charset.of_chars("/"))
_QUERY: Final = charset.union(_PATH, charset.of_chars("?"))


def bounded_uri(form: TextForm, high: int) -> Expr:
    """URIs (RFC 3986) of LARGEST_LOW to `high` characters at most, which is SHORTEST or more, then the form's tail."""
    host, fragment = min(_HOST, high * 3 // 10), min(_FRAGMENT, high // 16)
    # The marks are `://`, `:` of the port, `/`, `?` and `#`.
    left = high - _SCHEME - host - _PORT - fragment - 7
    with_escapes = high >= _ESCAPES_FROM
    units = left // 3 if with_escapes else left
    path = units * 3 // 5
    letters = charset.of_chars(_LETTERS)
    scheme = sequence(
        [
            form.chars(letters),
            repeat(form.chars(charset.of_chars(_LETTERS + _DIGITS + "+.-")), 0, _SCHEME - 1),
            form.literal(":"),
        ]
    )
    rest = _units(form, _PATH, path - 1, with_escapes)
    port = sequence([form.literal(":"), repeat(form.chars(charset.of_chars(_DIGITS)), 0, _PORT)])
    with_host = sequence(
        [
            form.literal("//"),
            repeat(form.chars(_NAMED), 0, host),
            optional(port),
            optional(sequence([form.literal("/"), rest])),
        ]
    )
    # Two characters at least after the scheme, as with a host.
    without = sequence(
        [form.chars(_IN_PATH), form.chars(_IN_PATH), _units(form, _PATH, path - 2, with_escapes)]
    )
    query = sequence([form.literal("?"), _units(form, _QUERY, units - path, with_escapes)])
    end = sequence([form.literal("#"), repeat(form.chars(_QUERY), 0, fragment)])
    return sequence([scheme, choice([with_host, without]), optional(query), optional(end), form.tail])


def _units(form: TextForm, chars: CharSet, high: int, with_escapes: bool) -> Expr:
    """Characters, or escapes of three characters."""
    unit = form.chars(chars)
    if with_escapes:
        hexadecimal = form.chars(charset.of_chars(_DIGITS + "abcdefABCDEF"))
        unit = choice([unit, sequence([Literal("%"), hexadecimal, hexadecimal])])
    return repeat(unit, 0, high)
