"""Puts whole grammars into a larger one: texts, control tokens and other grammars in a row or as alternatives."""

from __future__ import annotations

from jan_serve.constraint.ast import Expr, Grammar, RuleRef
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.transform import rename


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
