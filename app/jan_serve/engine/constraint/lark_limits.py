"""Limits of Lark texts for llguidance, which is native code: a stack overflow kills the worker.

llguidance compiles a rule or terminal at its first reference, and recurses for each reference and each group. Measured
(llguidance 1.8): 3.3 KB of stack per reference, up to 4.8 KB with groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from jan_serve.errors import GrammarTooComplex

MAX_DEPTH: Final = 2_000
MAX_LITERAL: Final = 100_000
"""Characters of one string. Forced text is tokenised in one go, up to 9 µs a token, while all other sequences wait."""
STACK_BYTES: Final = 32 << 20
"""Stack of the compiling thread: three times the need of MAX_DEPTH, whatever the platform's default."""

_DEFINITION: Final = re.compile(r"([A-Za-z_]\w*)(?:\.-?\d+)?\s*:(.*)")
_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"i?|/(?:[^/\\]|\\.)*/[a-z]*|[()\[\]]|[A-Za-z_]\w*|\{[^}]*\}')


def check_lark(lark: str) -> None:
    """Raises GrammarTooComplex. Linear in the length. Expects one definition per line, as our printer writes them."""
    if len(lark) <= MAX_LITERAL and lark.count("\n") + lark.count("(") + lark.count("[") < MAX_DEPTH:
        return  # a path has each definition once, with the groups around one of its references
    bodies = {match[1]: match[2] for line in lark.splitlines() if (match := _DEFINITION.match(line))}
    visited = {"start"}
    path = [(1, _references(bodies.get("start", "")))]
    while path:
        depth, references = path[-1]
        for name, groups in references:
            if depth + groups > MAX_DEPTH:
                raise GrammarTooComplex(
                    f"the rules of the grammar refer to one another deeper than {MAX_DEPTH} levels",
                    param="grammar",
                )
            if name in bodies and name not in visited:
                visited.add(name)
                path.append((depth + groups + 1, _references(bodies[name])))
                break
        else:
            path.pop()


def _references(body: str) -> Iterator[tuple[str, int]]:
    """The names in a body, each with its group depth. An opening bracket counts as a name."""
    groups = 0
    for match in _PIECE.finditer(body):
        piece = match[0]
        if piece in "([":
            groups += 1
            yield piece, groups
        elif piece in ")]":
            groups -= 1
        elif len(piece) > MAX_LITERAL:
            raise GrammarTooComplex(
                f"the grammar has a text of more than {MAX_LITERAL} characters", param="grammar"
            )
        elif piece[0].isalpha() or piece[0] == "_":
            yield piece, groups
