"""Reads Lark text: the pieces of a definition, its references, and how deep they lead."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"i?|/(?:[^/\\]|\\.)*/[a-z]*|[()\[\]]|[A-Za-z_]\w*|\{[^}]*\}')
"""Texts, expressions, the ends of groups, names and counts."""
GROUPS: Final = {"(": 1, "[": 1, ")": -1, "]": -1}


def named_in(pieces: Iterable[str], known: Container[str]) -> list[tuple[str, int]]:
    """The known definitions that these pieces of a body name, each with the groups around it."""
    found: list[tuple[str, int]] = []
    groups = 0
    for piece in pieces:
        if piece in GROUPS:
            groups += GROUPS[piece]
        elif piece in known:
            found.append((piece, groups))
    return found


def depths(uses: Callable[[str], Iterable[tuple[str, int]]], root: str) -> Iterator[tuple[str, int]]:
    """Each definition at the first reference to it, with the number of definitions and groups that are open then.
    uses: the references of a definition, as `named_in` has them; called before it is yielded."""
    seen = {root}
    path = [(1, iter(uses(root)))]
    yield root, 1
    while path:
        depth, rest = path[-1]
        for name, groups in rest:
            if name not in seen:
                seen.add(name)
                path.append((depth + groups + 1, iter(uses(name))))
                yield name, depth + groups + 1
                break
        else:
            path.pop()
