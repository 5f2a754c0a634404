"""Grammars of schemas, not printed."""

from __future__ import annotations

from typing import Any

from jan_serve.constraint.ast import EMPTY, NEVER, Expr, Grammar, Mode, Unordered, choice, sequence, unordered
from jan_serve.constraint.json_schema.translate import translate
from jan_serve.core.constraint import PropertyOrder, Whitespace
from jan_serve.core.uniqueness import Uniqueness


def grammar_alone(schema: Any, *, whitespace: Whitespace = Whitespace.CONSISTENT) -> Grammar:
    """Holds without a comparison of names and items beside it."""
    return translate(schema, whitespace=whitespace, mode=Mode.ALONE).grammar


def grammar_in_rules(
    schema: Any,
    *,
    whitespace: Whitespace = Whitespace.CONSISTENT,
    mode: Mode = Mode.IN_RULES,
    order: PropertyOrder = PropertyOrder.SCHEMA,
) -> tuple[Grammar, Uniqueness]:
    """With what has to be unique beside it."""
    found = translate(schema, whitespace=whitespace, mode=mode, order=order)
    assert found.uniqueness is not None
    return found.grammar, found.uniqueness


def members_in_turn(expr: Unordered) -> list[Expr]:
    """An `Unordered` as its first member and what may follow."""
    low, high = max(expr.low - 1, 0), None if expr.high is None else expr.high - 1
    options: list[Expr] = []
    for number, item in enumerate((*expr.items, expr.other)):
        items = expr.items[:number] + expr.items[number + 1 :]
        required = expr.required[:number] + expr.required[number + 1 :]
        rest = Unordered(items, required, expr.separator, expr.other, low, high)
        more = NEVER if high == 0 else sequence([expr.separator, unordered(rest)])
        end = EMPTY if not (low or any(required)) else NEVER
        options.append(sequence([item, choice([end, more])]))
    return [option for option in options if option != NEVER]
