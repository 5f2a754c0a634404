"""Solves mutually recursive right-linear rules into regular expressions (Arden's lemma, as Gaussian elimination)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from jan_serve.constraint.ast import EMPTY, Choice, Expr, Repeat, RuleRef, Sequence, Terminal, sequence
from jan_serve.constraint.transform import references

# Elimination may square the number of coefficients; beyond this a lexer gains nothing.
_MAX_RULES = 150
_MAX_EDGES = 2500

Row: TypeAlias = dict[str | None, list[str]]
"""The alternatives of a rule: per following rule (None: none), the printed texts before it."""


class NotRegular(Exception):
    """The rules are not right-linear, or too many to be solved."""


def solve(
    bodies: Mapping[str, Expr], render: Callable[[Expr], str], name: Callable[[str], str]
) -> dict[str, str]:
    """The printed regular expression of each rule.

    `render` prints an expression without references to these rules, `name` makes a printed alternation fit to stand in
    a sequence. Raises NotRegular.
    """
    if len(bodies) > _MAX_RULES:
        raise NotRegular
    rows: dict[str, Row] = {}
    for rule, body in bodies.items():
        row: Row = {}
        for before, target in _split(body, set(bodies)):
            row.setdefault(target, []).append("" if before == EMPTY else render(before))
        rows[rule] = row
    order: list[str] = []
    left = list(rows)
    while left:
        uses = Counter(target for rule in left for target in rows[rule])
        # The texts of a rule are copied to each use of it: those that make the fewest copies go first.
        rule = min(left, key=lambda rule: (uses[rule] - (rule in rows[rule])) * len(rows[rule]))
        left.remove(rule)
        order.append(rule)
        _eliminate(rows, rule, left, name)
        if sum(len(row) for row in rows.values()) > _MAX_EDGES:
            raise NotRegular
    solved: dict[str, str] = {}
    for rule in reversed(order):
        parts = [
            _joined(before, "" if target is None else solved[target])
            for target, texts in rows[rule].items()
            for before in texts
        ]
        solved[rule] = name(" | ".join(parts))
    return solved


def _split(expr: Expr, own: set[str]) -> list[tuple[Expr, str | None]]:
    """The expression as alternatives of (text, rule that follows)."""
    if own.isdisjoint(references(expr)):
        return [(expr, None)]
    if isinstance(expr, RuleRef):
        return [(EMPTY, expr.name)]
    if isinstance(expr, Terminal):
        return _split(expr.item, own)
    if isinstance(expr, Choice):
        return [pair for item in expr.items for pair in _split(item, own)]
    if isinstance(expr, Sequence):
        before = expr.items[:-1]
        if any(not own.isdisjoint(references(item)) for item in before):
            raise NotRegular
        return [(sequence([*before, text]), target) for text, target in _split(expr.items[-1], own)]
    assert isinstance(expr, Repeat)
    if (expr.low, expr.high) != (0, 1):
        raise NotRegular
    return [(EMPTY, None), *_split(expr.item, own)]


def _eliminate(rows: dict[str, Row], rule: str, later: list[str], name: Callable[[str], str]) -> None:
    """Solve the self-loop of one rule, then substitute its row into the later rows."""
    row = rows[rule]
    own = [text for text in row.pop(rule, []) if text]
    if own:
        loop = f"({' | '.join(own)})*"
        rows[rule] = row = {target: [_joined(loop, text) for text in texts] for target, texts in row.items()}
    # Every row that is left refers to later rules only: shared texts are named before they multiply.
    for target, texts in row.items():
        if len(texts) > 1 or len(texts[0]) > 20:
            row[target] = [name(" | ".join(text or '""' for text in texts))]
    for other in later:
        texts = rows[other].pop(rule, None)
        if texts is None:
            continue
        for target, tails in row.items():
            known = rows[other].setdefault(target, [])
            known += [_joined(before, tail) for before in texts for tail in tails]


def _joined(before: str, after: str) -> str:
    return f"{before} {after}" if before and after else before or after or '""'
