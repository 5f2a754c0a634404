"""Whole-grammar transformations that keep the language: dropping what can never be completed or reached."""

from __future__ import annotations

from jan_serve.grammar.ast import (
    EMPTY,
    NEVER,
    CharClass,
    Choice,
    Expr,
    Grammar,
    Literal,
    Repeat,
    RuleRef,
    Sequence,
    choice,
    repeat,
    sequence,
)


def references(expr: Expr) -> set[str]:
    """The names of the rules that an expression uses."""
    found: set[str] = set()
    todo = [expr]
    while todo:
        item = todo.pop()
        kind = type(item)
        if kind is RuleRef:
            found.add(item.name)  # type: ignore[union-attr]
        elif kind is Sequence or kind is Choice:
            todo += item.items  # type: ignore[union-attr]
        elif kind is Repeat:
            todo.append(item.item)  # type: ignore[union-attr]
    return found


def prune(grammar: Grammar, complete: set[str] | None = None) -> Grammar | None:
    """The grammar without rules and alternatives that no finite text completes; None where the root is one.

    `complete` names rules that are known to be completed, and whose parts are.
    """
    productive = _productive_rules(grammar, complete or set())
    if grammar.root not in productive:
        return None
    rules = grammar.rules
    if len(productive) == len(rules):
        return grammar
    rules = {name: _without(expr, productive) for name, expr in rules.items() if name in productive}
    return Grammar(_reachable(rules, grammar.root), grammar.root)


def _productive_rules(grammar: Grammar, complete: set[str]) -> set[str]:
    """Least fixed point: a rule is productive once its body is, given the rules that are."""
    productive = set(complete)
    open_rules = [name for name in grammar.rules if name not in productive]
    users: dict[str, list[str]] = {}
    for name in open_rules:
        for other in references(grammar.rules[name]):
            users.setdefault(other, []).append(name)
    todo = open_rules
    while todo:
        name = todo.pop()
        if name not in productive and _completes(grammar.rules[name], productive):
            productive.add(name)
            todo += users.get(name, ())
    return productive


def _completes(expr: Expr, productive: set[str]) -> bool:
    kind = type(expr)
    if kind is Literal or kind is CharClass:
        return True
    if kind is RuleRef:
        return expr.name in productive  # type: ignore[union-attr]
    if kind is Sequence:
        return all(_completes(item, productive) for item in expr.items)  # type: ignore[union-attr]
    if kind is Choice:
        return any(_completes(item, productive) for item in expr.items)  # type: ignore[union-attr]
    assert isinstance(expr, Repeat)
    return expr.low == 0 or _completes(expr.item, productive)


def _without(expr: Expr, productive: set[str]) -> Expr:
    if isinstance(expr, RuleRef):
        return expr if expr.name in productive else NEVER
    if isinstance(expr, Sequence):
        return sequence([_without(item, productive) for item in expr.items])
    if isinstance(expr, Choice):
        return choice([_without(item, productive) for item in expr.items])
    if isinstance(expr, Repeat):
        return repeat(_without(expr.item, productive), expr.low, expr.high)
    return expr


def _reachable(rules: dict[str, Expr], root: str) -> dict[str, Expr]:
    """The rules that the root uses, in the order in which reading down from the root meets them."""
    order: dict[str, Expr] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in order:
            order[name] = rules[name]
            todo += sorted(references(rules[name]), reverse=True)
    return order


__all__ = ["EMPTY", "prune", "references"]
