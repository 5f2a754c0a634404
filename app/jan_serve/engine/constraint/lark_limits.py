"""Limits of Lark texts for llguidance, which is native code: a stack overflow kills the worker.

llguidance compiles a rule or terminal at its first reference, and recurses for each reference and each group. Measured
(llguidance 1.8): 3.3 KB of stack per reference, up to 4.8 KB with groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from jan_serve.errors import GrammarTooComplex

MAX_DEPTH: Final = 2_000
MAX_LITERAL: Final = 100_000
"""Characters of one string. Forced text is tokenised in one go, up to 9 µs a token, while all other sequences wait."""
STACK_BYTES: Final = 32 << 20
"""Stack of the compiling thread: three times the need of MAX_DEPTH, whatever the platform's default."""

_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"i?|/(?:[^/\\]|\\.)*/[a-z]*|[()\[\]]|[A-Za-z_]\w*|\{[^}]*\}')


def check_lark(lark: str) -> None:
    """Raises GrammarTooComplex. Linear in the length. Expects one definition per line, as our printer writes them."""
    if len(lark) <= MAX_LITERAL and lark.count("\n") + lark.count("(") + lark.count("[") < MAX_DEPTH:
        return  # a path has each definition once, with the groups around one of its references
    parts = (line.partition(":") for line in lark.splitlines())
    bodies = {head.rstrip().partition(".")[0]: body for head, colon, body in parts if colon}
    visited = {"start"}
    path = [(1, iter(_references(bodies.get("start", ""), bodies, 1)))]
    while path:
        depth, references = path[-1]
        for name, groups in references:
            if name not in visited:
                visited.add(name)
                below = depth + groups + 1
                path.append((below, iter(_references(bodies[name], bodies, below))))
                break
        else:
            path.pop()


def _references(text: str, bodies: Mapping[str, str], depth: int) -> list[tuple[str, int]]:
    """The definitions that a body refers to, each with the groups around it. depth: of the body."""
    pieces: list[str] = _PIECE.findall(text)
    if len(text) > MAX_LITERAL and max(map(len, pieces), default=0) > MAX_LITERAL:
        raise GrammarTooComplex(
            f"the grammar has a text of more than {MAX_LITERAL} characters", param="grammar"
        )
    found: list[tuple[str, int]] = []
    groups = most = 0
    for piece in pieces:
        if piece in bodies:
            found.append((piece, groups))
        elif piece == "(" or piece == "[":
            groups += 1
            most = max(most, groups)
        elif piece == ")" or piece == "]":
            groups -= 1
    if depth + most > MAX_DEPTH:
        raise GrammarTooComplex(
            f"the rules of the grammar refer to one another deeper than {MAX_DEPTH} levels", param="grammar"
        )
    return found
