"""The texts of a chat format as grammar expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jan_serve.constraint.ast import Expr, Literal, Special


def spelled_texts(text: str, specials: Sequence[str]) -> list[Expr]:
    """A text of the format, split at its control tokens."""
    if not text:
        return []
    if not specials:
        return [Literal(text)]
    marks = sorted(specials, key=len, reverse=True)
    pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text)
    return [Special(piece) if piece in specials else Literal(piece) for piece in pieces if piece]
