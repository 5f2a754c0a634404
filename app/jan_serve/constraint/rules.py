"""The rules of grammars: collected under readable names, walked, pruned, renamed, and put into larger grammars."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from jan_serve.constraint import ast
from jan_serve.constraint.ast import NEVER, Expr, Grammar, RuleRef
from jan_serve.constraint.limits import MAX_RULES
from jan_serve.errors import GrammarTooComplex

K = TypeVar("K", bound=Hashable)
_WITH_ITEMS = frozenset({ast.Sequence, ast.Choice, ast.Unordered})
_WITH_ITEM = frozenset({ast.Repeat, ast.Terminal, ast.Except, ast.Both, ast.OneLayout, ast.Brackets})
_UNSAFE = re.compile(r"[^a-zA-Z0-9]+")


def walk(exprs: Iterable[Expr]) -> Iterator[Any]:
    """The expressions, and all that they hold."""
    todo = [*exprs]
    while todo:
        item: Any = todo.pop()
        yield item
        kind = item.__class__
        if kind in _WITH_ITEMS:
            todo += item.items
            if kind is ast.Unordered:
                todo += (item.separator, item.other)
        elif kind in _WITH_ITEM:
            todo.append(item.item)
            if kind is ast.Both:
                todo.append(item.other)
            elif kind is ast.Except:
                todo += item.words


def references(expr: Expr) -> set[str]:
    """The names of the rules that an expression uses."""
    return {item.name for item in walk([expr]) if item.__class__ is RuleRef}


def has_node(grammar: Grammar, kind: type[Expr]) -> bool:
    # The root, where layouts usually are, first.
    return any(
        item.__class__ is kind for item in walk([*grammar.rules.values(), grammar.rules[grammar.root]])
    )


def has_lark_only(grammar: Grammar) -> bool:
    """Whether some terminal of the grammar cannot be written as rules."""
    return any(item.__class__ is ast.Terminal and item.lark_only for item in walk(grammar.rules.values()))


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with what it holds changed; NEVER where that leaves no text."""
    match expr:
        case ast.Sequence(items):
            return ast.sequence([change(item) for item in items])
        case ast.Choice(items):
            return ast.choice([change(item) for item in items])
        case ast.Repeat(item, low, high):
            return ast.repeat(change(item), low, high)
        case ast.Brackets(opening, item, closing):
            return ast.brackets(opening, change(item), closing)
        case ast.Unordered(items, separator=separator, other=other):
            own = tuple([change(item) for item in items])
            return ast.unordered(replace(expr, items=own, separator=change(separator), other=change(other)))
        case ast.Both(item, other):
            item, other = change(item), change(other)
            return NEVER if NEVER in (item, other) else ast.Both(item, other)
        case ast.Except(item, words):
            item = change(item)
            return NEVER if item == NEVER else ast.Except(item, tuple([change(word) for word in words]))
        case ast.Terminal(item) | ast.OneLayout(item):
            item = change(item)
            return NEVER if item == NEVER else replace(expr, item=item)
        case _:
            return expr


def rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with every reference to a rule of `names` changed to its new name."""
    if isinstance(expr, RuleRef):
        return RuleRef(names.get(expr.name, expr.name))
    return mapped(expr, lambda item: rename(item, names))


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


def prune(grammar: Grammar, complete: set[str] | None = None) -> Grammar | None:
    """The grammar without rules and alternatives that no finite text completes; None if the root is one of them.
    `complete` names rules that are known to be completed, and whose parts are."""
    rules = grammar.rules
    uses = {name: references(expr) for name, expr in rules.items() if not complete or name not in complete}
    lost = _unproductive(rules, uses)
    if grammar.root in lost:
        return None
    if not lost:
        return grammar
    kept = {
        name: expr if lost.isdisjoint(uses.get(name, ())) else _without(expr, lost)
        for name, expr in rules.items()
        if name not in lost
    }
    return Grammar(reachable(kept, grammar.root), grammar.root)


def users_of(uses: Mapping[K, Iterable[K]]) -> dict[K, list[K]]:
    """Who uses each name."""
    users: dict[K, list[K]] = {}
    for name, used in uses.items():
        for other in used:
            users.setdefault(other, []).append(name)
    return users


def _unproductive(rules: dict[str, Expr], uses: dict[str, set[str]]) -> set[str]:
    """The rules in `uses` that no text completes; all other rules are productive. A rule whose references are all
    productive is productive too: expressions never hold NEVER inside. Only the rest, rules on cycles and those that
    lost a reference, is examined, and not again for each of its references: a rule may have thousands."""
    users = users_of(uses)
    lost = set(uses)
    waiting = {name: len(lost.intersection(used)) for name, used in uses.items()}
    todo = [name for name, count in waiting.items() if not count]
    changed = set(uses)
    while todo or changed:
        while todo:
            name = todo.pop()
            if name not in lost or rules[name] == NEVER:
                continue
            lost.remove(name)
            for user in users.get(name, ()):
                waiting[user] -= 1
                changed.add(user)
                if not waiting[user]:
                    todo.append(user)
        todo = [name for name in changed if name in lost and _completes(rules[name], lost)]
        changed = set[str]()
    return lost


def _completes(expr: Expr, lost: set[str]) -> bool:
    match expr:
        case RuleRef(name):
            return name not in lost
        case ast.Sequence(items):
            return all(_completes(item, lost) for item in items)
        case ast.Choice(items):
            return any(_completes(item, lost) for item in items)
        case ast.Both(item, other):
            return _completes(item, lost) and _completes(other, lost)
        case ast.Terminal(item) | ast.Except(item) | ast.OneLayout(item) | ast.Brackets(_, item):
            return _completes(item, lost)
        case ast.Repeat(item, low):
            return low == 0 or _completes(item, lost)
        case ast.Unordered(items, required, other=other, low=low):
            done = [_completes(item, lost) for item in items]
            needed = all(own for own, needed in zip(done, required, strict=True) if needed)
            others = other != NEVER and _completes(other, lost)
            return needed and (others or sum(done) >= max(low, 1))
        case _:
            return True


def _without(expr: Expr, lost: set[str]) -> Expr:
    if isinstance(expr, RuleRef):
        return NEVER if expr.name in lost else expr
    return mapped(expr, lambda item: _without(item, lost))


class RuleBuilder:
    """Rules by name. `reserve` and `fill` serve recursive rules, `define` the others. The start rule is `root`."""

    def __init__(self) -> None:
        self.rules: dict[str, Expr] = {}
        self.complete: set[str] = set()
        """Rules that some text completes, as their writer knows; nothing in them needs to be pruned."""
        self._taken = {"root"}
        self._next: dict[str, int] = {}

    def reserve(self, hint: str, *, complete: bool = False) -> str:
        """A new rule name made from `hint`; `complete` as in `RuleBuilder.complete`."""
        stem = _UNSAFE.sub("-", hint)[:40].strip("-").lower() or "rule"
        name = stem
        if name in self._taken:
            number = self._next.get(stem, 2)
            while f"{stem}-{number}" in self._taken:
                number += 1
            self._next[stem] = number + 1
            name = f"{stem}-{number}"
        self._taken.add(name)
        if complete:
            self.complete.add(name)
        if len(self._taken) > MAX_RULES:
            raise GrammarTooComplex(f"the grammar would have more than {MAX_RULES} rules")
        return name

    def adopt(self, grammar: Grammar) -> None:
        """Take the names of a grammar as they are: it is being rewritten."""
        self._taken.update(grammar.rules)
        self.rules.update(dict.fromkeys(grammar.rules, NEVER))

    def fill(self, name: str, expr: Expr) -> None:
        """Give a reserved name its body."""
        self.rules[name] = expr

    def define(self, hint: str, expr: Expr, *, complete: bool = False) -> RuleRef:
        """A new rule with this body; `complete` as in `RuleBuilder.complete`."""
        name = self.reserve(hint, complete=complete)
        self.rules[name] = expr
        return RuleRef(name)

    def states(self, hint: str, start: K, body: Callable[[K, Callable[[K], Expr]], Expr]) -> Expr:
        """What follows the state `start`, with a rule for each other one. body: what follows a state, given what refers
        to another."""
        names: dict[K, str] = {}
        todo: list[K] = []

        def follow(state: K) -> Expr:
            if state not in names:
                names[state] = self.reserve(hint)
                todo.append(state)
            return RuleRef(names[state])

        found = body(start, follow)
        while todo:
            state = todo.pop()
            self.fill(names[state], body(state, follow))
        return found

    def embed(self, grammar: Grammar, hint: str) -> Expr:
        """The language of `grammar`, whose rules are added. Raises GrammarTooComplex above their limit."""
        names = {name: self.reserve(f"{hint}-{name}") for name in grammar.rules}
        for name, expr in grammar.rules.items():
            self.fill(names[name], rename(expr, names))
        return RuleRef(names[grammar.root])

    def grammar(self, root: Expr) -> Grammar:
        """All rules, with the body of the start rule."""
        self.rules["root"] = root
        return Grammar(self.rules)
