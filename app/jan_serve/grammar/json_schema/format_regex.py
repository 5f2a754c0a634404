"""The format `regex` as a pattern: a regular part of ECMA-262, each of whose words is a valid expression.

Without lookaheads; groups nest to a depth of two. Ranges and counts are in order because their two ends are written
together.
"""

from __future__ import annotations

_ESCAPE = "\\\\(?:[dDwWsStnrvf^$\\\\.*+?()[\\]{}|/-]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
_LITERAL = "[^\\u0000-\\u001f^$\\\\.*+?()[\\]{}|/]"
_ANCHOR = "(?:[\\^$]|\\\\[bB])"
_NEST = 2


def _ordered(alphabet: str, separator: str) -> str:
    """Two characters of the alphabet, the second not before the first, with a separator between them."""
    last = alphabet[-1]
    return "|".join(f"{c}{separator}[{c}-{last}]" for c in alphabet)


def regex_pattern() -> str:
    """The pattern, to be matched from end to end."""
    ranges = "|".join(
        _ordered(alphabet, "-")
        for alphabet in ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    )
    member = f"(?:{ranges}|{_ESCAPE}|[^\\u0000-\\u001f\\\\\\][^-])"
    # After a range or a member no dash may follow, except the last one, which stands for itself.
    character_class = f"\\[\\^?{member}+-?\\]"
    counts = f"[0-9]{{1,3}},?|0,[0-9]{{1,3}}|1,[1-9][0-9]{{0,2}}|{_ordered('23456789', ',')}"
    quantifier = f"(?:[*+?]|\\{{(?:{counts})\\}})\\??"
    atom = f"(?:{_LITERAL}|{_ESCAPE}|\\.|{character_class})"
    body = f"(?:{_ANCHOR}|\\||{atom}(?:{quantifier})?)*"
    for _ in range(_NEST):
        group = f"\\((?:\\?:)?{body}\\)(?:{quantifier})?"
        body = f"(?:{_ANCHOR}|\\||{atom}(?:{quantifier})?|{group})*"
    return body
