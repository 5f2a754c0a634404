"""Replaces expressions that grow exponentially in executors by equivalent ones: repetitions of possibly empty
expressions, and long lists of words."""

from __future__ import annotations

from jan_serve.constraint.ast import (
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
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.limits import spend
from jan_serve.constraint.text_form import PlainText
from jan_serve.constraint.well_formed import is_nullable, nullable_rules
from jan_serve.constraint.word_trie import words_expr

# From so many words on, one stack per word costs more than a trie.
_MANY_WORDS = 16


def normalise(grammar: Grammar) -> Grammar:
    """The same language; `(x?){0,n}` has become `x{0,n}`, and long alternations of literals a trie of rules.

    The grammar holds no `Terminal`: GBNF writes none.
    """
    builder = RuleBuilder()
    for name in grammar.rules:
        builder.adopt(name)
    rewriter = _Rewriter(nullable_rules(grammar.rules), builder)
    for name, expr in grammar.rules.items():
        builder.fill(name, rewriter.rewrite(expr))
    return builder.grammar(grammar.root)


class _Rewriter:
    def __init__(self, nullable: set[str], builder: RuleBuilder) -> None:
        self._nullable = nullable
        self._builder = builder

    def rewrite(self, expr: Expr) -> Expr:
        if isinstance(expr, Sequence):
            return sequence([self.rewrite(item) for item in expr.items])
        if isinstance(expr, Choice):
            words = [item.text for item in expr.items if isinstance(item, Literal)]
            if len(words) > _MANY_WORDS:
                trie = words_expr(tuple(words), PlainText(), self._builder, "words")
                others = [self.rewrite(item) for item in expr.items if not isinstance(item, Literal)]
                return choice([trie, *others])
            return choice([self.rewrite(item) for item in expr.items])
        if isinstance(expr, Repeat):
            return self._repeat(expr)
        return expr

    def _repeat(self, expr: Repeat) -> Expr:
        item = self.rewrite(expr.item)
        if expr.high == 1 or not is_nullable(item, self._nullable):
            return repeat(item, expr.low, expr.high)
        solid = self._non_empty(item)
        return repeat(item, expr.low, expr.high) if solid is None else repeat(solid, 0, expr.high)

    def _non_empty(self, expr: Expr) -> Expr | None:
        """The non-empty texts of an expression; None where a rule would have to be rewritten for it."""
        if not is_nullable(expr, self._nullable):
            return expr
        if isinstance(expr, RuleRef):
            return None
        if isinstance(expr, Choice):
            parts = [self._non_empty(item) for item in expr.items]
            return None if None in parts else choice([part for part in parts if part is not None])
        if isinstance(expr, Repeat):
            solid = self._non_empty(expr.item)
            return None if solid is None else repeat(solid, 1, expr.high)
        assert isinstance(expr, Sequence)
        options: list[Expr] = []
        for index, item in enumerate(expr.items):
            solid = self._non_empty(item)
            if solid is None:
                return None
            spend(len(expr.items) - index)
            options.append(sequence([solid, *expr.items[index + 1 :]]))
        return choice(options)
