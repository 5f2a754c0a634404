"""A builder collects the rules of a grammar and keeps their names unique and readable; a composer puts whole grammars
into a larger one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import TypeVar

from jan_serve.constraint.ast import NEVER, Expr, Grammar, RuleRef
from jan_serve.constraint.limits import MAX_RULES
from jan_serve.constraint.transform import rename
from jan_serve.errors import GrammarTooComplex

K = TypeVar("K", bound=Hashable)
_UNSAFE = re.compile(r"[^a-zA-Z0-9]+")


class RuleBuilder:
    """Rules by name. `reserve` and `fill` serve recursive rules, `define` the others."""

    def __init__(self) -> None:
        self.rules: dict[str, Expr] = {}
        self.complete: set[str] = set()
        """Rules that some text completes, as their writer knows; nothing in them needs to be pruned."""
        self._taken: set[str] = set()
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

    def adopt(self, name: str) -> None:
        """Take a name as it is: it belongs to a grammar that is being rewritten."""
        self._taken.add(name)
        self.rules[name] = NEVER

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

    def grammar(self, root: str) -> Grammar:
        return Grammar(self.rules, root)


def embed(rules: RuleBuilder, grammar: Grammar, hint: str) -> Expr:
    """The language of `grammar`, whose rules are added to `rules`. Raises GrammarTooComplex above their limit."""
    names = {name: rules.reserve(f"{hint}-{name}") for name in grammar.rules}
    for name, expr in grammar.rules.items():
        rules.fill(names[name], rename(expr, names))
    return RuleRef(names[grammar.root])


class Composer:
    """Collects the rules of a grammar made of others. `rules` takes further ones."""

    def __init__(self) -> None:
        self.rules = RuleBuilder()
        self.rules.reserve("root")

    def embed(self, grammar: Grammar, hint: str) -> Expr:
        """The language of `grammar`. Raises GrammarTooComplex above the limit of rules."""
        return embed(self.rules, grammar, hint)

    def grammar(self, root: Expr) -> Grammar:
        self.rules.fill("root", root)
        return self.rules.grammar("root")
