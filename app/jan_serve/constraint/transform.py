"""Whole-grammar transformations that keep the language: removal of unproductive and unreachable rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from jan_serve.constraint.ast import (
    NEVER,
    Both,
    Brackets,
    Choice,
    Except,
    Expr,
    Grammar,
    OneLayout,
    Repeat,
    RuleRef,
    Sequence,
    Terminal,
    Unordered,
    brackets,
    choice,
    repeat,
    sequence,
    unordered,
)

_WITH_ITEMS = frozenset({Sequence, Choice, Unordered})
_WITH_ITEM = frozenset({Repeat, Terminal, Except, Both, OneLayout, Brackets})


def references(expr: Expr) -> set[str]:
    """The names of the rules that an expression uses."""
    return {item.name for item in walk([expr]) if item.__class__ is RuleRef}


def has_lark_only(grammar: Grammar) -> bool:
    """Whether some terminal of the grammar cannot be written as rules."""
    return any(item.__class__ is Terminal and item.lark_only for item in walk(grammar.rules.values()))


def has_unordered(grammar: Grammar) -> bool:
    """Whether some of its rules need parameters."""
    return any(item.__class__ is Unordered for item in walk(grammar.rules.values()))


def walk(exprs: Iterable[Expr]) -> Iterator[Any]:
    """The expressions, and all that they hold."""
    todo = [*exprs]
    while todo:
        item: Any = todo.pop()
        yield item
        kind = item.__class__
        if kind in _WITH_ITEMS:
            todo += item.items
            if kind is Unordered:
                todo += (item.separator, item.other)
        elif kind in _WITH_ITEM:
            todo.append(item.item)
            if kind is Both:
                todo.append(item.other)
            elif kind is Except:
                todo += item.words


def prune(grammar: Grammar, complete: set[str] | None = None) -> Grammar | None:
    """The grammar without rules and alternatives that no finite text completes; None if the root is one of them.

    `complete` names rules that are known to be completed, and whose parts are.
    """
    uses = {
        name: references(expr) for name, expr in grammar.rules.items() if not complete or name not in complete
    }
    productive = _productive_rules(grammar, uses)
    lost = uses.keys() - productive
    if grammar.root in lost:
        return None
    if not lost:
        return grammar
    rules = {
        name: expr if lost.isdisjoint(uses.get(name, ())) else _without(expr, lost)
        for name, expr in grammar.rules.items()
        if name not in lost
    }
    return Grammar(reachable(rules, grammar.root), grammar.root)


def _productive_rules(grammar: Grammar, uses: dict[str, set[str]]) -> set[str]:
    """Least fixed point over the rules in `uses`; all other rules are productive.

    A rule whose references are all productive is productive too: expressions never hold NEVER inside. Only the rest,
    rules on cycles and those that lost a reference, is examined.
    """
    waiting: dict[str, set[str]] = {
        name: {other for other in used if other in uses} for name, used in uses.items()
    }
    users: dict[str, list[str]] = {}
    for name, others in waiting.items():
        for other in others:
            users.setdefault(other, []).append(name)
    productive: set[str] = set()
    todo: list[str] = [name for name, others in waiting.items() if not others]
    changed = set(uses)
    while todo or changed:
        while todo:
            name = todo.pop()
            if name in productive or grammar.rules[name] == NEVER:
                continue
            productive.add(name)
            for user in users.get(name, ()):
                waiting[user].discard(name)
                changed.add(user)
                if not waiting[user]:
                    todo.append(user)
        todo = [
            name
            for name in changed
            if name not in productive and _completes(grammar.rules[name], productive, uses)
        ]
        changed = set[str]()
    return productive


def _completes(expr: Expr, productive: set[str], uses: dict[str, set[str]]) -> bool:
    if isinstance(expr, RuleRef):
        return expr.name in productive or expr.name not in uses
    if isinstance(expr, Sequence):
        return all(_completes(item, productive, uses) for item in expr.items)
    if isinstance(expr, Choice):
        return any(_completes(item, productive, uses) for item in expr.items)
    if isinstance(expr, Both):
        return _completes(expr.item, productive, uses) and _completes(expr.other, productive, uses)
    if isinstance(expr, Terminal | Except | OneLayout | Brackets):
        return _completes(expr.item, productive, uses)
    if isinstance(expr, Repeat):
        return expr.low == 0 or _completes(expr.item, productive, uses)
    if isinstance(expr, Unordered):
        done = [_completes(item, productive, uses) for item in expr.items]
        needed = all(own for own, needed in zip(done, expr.required, strict=True) if needed)
        others = expr.other != NEVER and _completes(expr.other, productive, uses)
        return needed and (others or sum(done) >= max(expr.low, 1))
    return True


def _without(expr: Expr, lost: set[str]) -> Expr:
    if isinstance(expr, RuleRef):
        return NEVER if expr.name in lost else expr
    return mapped(expr, lambda item: _without(item, lost))


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with what it holds changed; NEVER where that leaves no text."""
    if isinstance(expr, Sequence):
        return sequence([change(item) for item in expr.items])
    if isinstance(expr, Choice):
        return choice([change(item) for item in expr.items])
    if isinstance(expr, Repeat):
        return repeat(change(expr.item), expr.low, expr.high)
    if isinstance(expr, Brackets):
        return brackets(expr.opening, change(expr.item), expr.closing)
    if isinstance(expr, Unordered):
        items = tuple([change(item) for item in expr.items])
        return unordered(
            replace(expr, items=items, separator=change(expr.separator), other=change(expr.other))
        )
    if not isinstance(expr, Terminal | Except | Both | OneLayout):
        return expr
    item = change(expr.item)
    if isinstance(expr, Both):
        other = change(expr.other)
        return NEVER if NEVER in (item, other) else Both(item, other)
    if item == NEVER:
        return NEVER
    if isinstance(expr, Except):
        return Except(item, tuple([change(word) for word in expr.words]))
    return replace(expr, item=item)


def reachable(rules: dict[str, Expr], root: str) -> dict[str, Expr]:
    """The rules reachable from the root, in depth-first order."""
    order: dict[str, Expr] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in order:
            order[name] = rules[name]
            todo += sorted(references(rules[name]), reverse=True)
    return order


def rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with every reference to a rule of `names` changed to its new name."""
    if isinstance(expr, RuleRef):
        return RuleRef(names.get(expr.name, expr.name))
    return mapped(expr, lambda item: rename(item, names))
