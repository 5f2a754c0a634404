"""The format `regex` as an expression: a regular part of ECMA-262 with the flag u, each of whose words is valid.

Groups nest to a depth of two. Lookarounds and a group with a name hold no others and stand in none, and there is one
name at most: two could be the same. There are no backreferences, as their group has to be there. Ranges and counts are
in order because their two ends are written together.
"""

from __future__ import annotations

from typing import Final

from jan_serve.constraint.regex.ast import EPSILON, Loop, Regex, alternation, concat
from jan_serve.constraint.regex.parse import parse_regex

_HEX: Final = "[0-9A-Fa-f]"
_CATEGORY: Final = "L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|C[cfnos]?"
_PROPERTY: Final = f"(?:gc=)?(?:{_CATEGORY})"
_CODES: Final = (
    f"[dDwWsStnrvf^$\\\\.*+?()[\\]{{}}|/]|c[A-Za-z]|x{_HEX}{{2}}|u{_HEX}{{4}}"
    f"|u\\{{(?:{_HEX}{{1,5}}|10{_HEX}{{4}})\\}}|[pP]\\{{(?:{_PROPERTY})\\}}"
)
_LITERAL: Final = "[^\\u0000-\\u001f^$\\\\.*+?()[\\]{}|]"
_ANCHOR: Final = "[\\^$]|\\\\[bB]"
_NAME: Final = "[A-Za-z_$][A-Za-z0-9_$]*"


def _ordered(alphabet: str, separator: str) -> str:
    """Two characters of the alphabet, the second not before the first, with a separator between them."""
    last = alphabet[-1]
    return "|".join(f"{c}{separator}[{c}-{last}]" for c in alphabet)


def regex_language() -> Regex:
    """An expression whose words are valid expressions."""
    alphabets = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    ranges = "|".join([*(_ordered(alphabet, "-") for alphabet in alphabets), "[ !]-[/-@A-Z_a-z{-~]"])
    member = f"(?:{ranges}|\\\\(?:{_CODES}|[b-])|[^\\u0000-\\u001f\\\\\\]-])"
    # A dash stands for itself at the ends only: elsewhere it could make a range of what is not in order.
    character_class = f"\\[\\^?-?{member}*-?\\]"
    ordered = f"{_ordered('0123456789', ',')}|[0-9],[1-9][0-9]{{1,2}}|[0-9]{{2}},[1-9][0-9]{{2}}"
    quantifier = f"(?:(?:[*+?]|\\{{(?:[0-9]{{1,3}},?|{ordered})\\}})\\??)?"
    piece = parse_regex(f"{_ANCHOR}|\\||(?:{_LITERAL}|\\\\(?:{_CODES})|\\.|{character_class}){quantifier}")
    group, look, named = (
        parse_regex("\\((?:\\?:)?"),
        parse_regex("\\(\\?<?[=!]"),
        parse_regex(f"\\(\\?<{_NAME}>"),
    )
    close, repeated = parse_regex("\\)"), parse_regex(f"\\){quantifier}")

    def any_of(*parts: Regex) -> Regex:
        return Loop(alternation([piece, *parts]), 0, None)

    inner = any_of(concat([group, any_of(), repeated]))
    outer = any_of(concat([group, inner, repeated]), concat([look, any_of(), close]))
    with_name = concat([named, any_of(), repeated, inner])
    return concat([outer, alternation([EPSILON, with_name])])
