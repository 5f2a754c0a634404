"""Flat expressions: sequences of counted character classes, each disjoint from the next.

They are printed as written, whatever the counts; an automaton would need a state for each count.
"""

from __future__ import annotations

from typing import TypeAlias

from jan_serve.constraint import charset
from jan_serve.constraint.ast import Expr, repeat
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.regex.ast import Chars, Concat, Loop, Regex
from jan_serve.constraint.text_form import TextForm

Piece: TypeAlias = tuple[CharSet, int, int | None]
"""(characters, fewest, most); most None means no bound."""


def flat_pieces(regex: Regex) -> list[Piece] | None:
    """The pieces of a flat expression; None for any other, or where a piece could run into what follows it."""
    pieces: list[Piece] = []
    for item in regex.items if isinstance(regex, Concat) else (regex,):
        if isinstance(item, Chars):
            pieces.append((item.chars, 1, 1))
        elif isinstance(item, Loop) and isinstance(item.item, Chars):
            pieces.append((item.item.chars, item.low, item.high))
        else:
            return None
    for index, (chars, low, high) in enumerate(pieces):
        if low == high:
            continue
        for other, least, _ in pieces[index + 1 :]:
            if charset.intersect(chars, other):
                return None
            if least:
                break
    return pieces


def pieces_expr(pieces: list[Piece], form: TextForm) -> list[Expr]:
    """The pieces in order, equal single characters joined into counts."""
    joined: list[Piece] = []
    for chars, low, high in pieces:
        if joined and joined[-1][0] == chars and high is not None and (last := joined[-1])[2] == last[1]:
            joined[-1] = (chars, last[1] + low, last[1] + high)
        else:
            joined.append((chars, low, high))
    return [repeat(form.chars(chars), low, high) for chars, low, high in joined]
