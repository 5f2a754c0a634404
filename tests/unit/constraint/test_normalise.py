"""Rewriting for the executors: the same texts, without what grows exponentially."""

from __future__ import annotations

from hypothesis import given

from jan_serve.constraint.ast import (
    Choice,
    Expr,
    Grammar,
    Literal,
    Repeat,
    RuleRef,
    Sequence,
    Terminal,
)
from jan_serve.constraint.normalise import normalise
from jan_serve.constraint.well_formed import is_nullable, nullable_rules
from tests.unit.constraint.matching import GRAMMARS, belongs, texts

A, B = Literal("a"), Literal("b")


def _gbnf(grammar: Grammar) -> Grammar:
    """The grammar as GBNF can say it, without tokens."""

    def plain(expr: Expr) -> Expr:
        if isinstance(expr, Terminal):
            return plain(expr.item)
        if isinstance(expr, Sequence | Choice):
            return type(expr)(tuple(plain(item) for item in expr.items))
        return Repeat(plain(expr.item), expr.low, expr.high) if isinstance(expr, Repeat) else expr

    return Grammar({name: plain(expr) for name, expr in grammar.rules.items()})


@given(GRAMMARS.map(_gbnf))
def test_the_texts_stay(grammar: Grammar) -> None:
    rewritten = normalise(grammar)
    for text in texts("ab", 5):
        assert belongs(rewritten, text) is belongs(grammar, text), text


def _parts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Sequence | Choice):
        return [expr, *(part for item in expr.items for part in _parts(item))]
    return [expr, *_parts(expr.item)] if isinstance(expr, Repeat) else [expr]


@given(GRAMMARS.map(_gbnf))
def test_only_a_rule_is_repeated_where_it_may_be_empty(grammar: Grammar) -> None:
    rewritten = normalise(grammar)
    nullable = nullable_rules(rewritten.rules)
    for expr in rewritten.rules.values():
        for part in _parts(expr):
            if isinstance(part, Repeat) and part.high != 1 and is_nullable(part.item, nullable):
                assert any(isinstance(inner, RuleRef) for inner in _parts(part.item)), part


def test_many_words_become_a_trie() -> None:
    words = [f"a{first}{second}" for first in "abcdef" for second in "abcdef"]
    grammar = normalise(Grammar({"root": Choice((*(Literal(word) for word in words), RuleRef("b"))), "b": B}))
    assert isinstance(grammar.rules["root"], Choice)
    assert len(grammar.rules["root"].items) == 2
    assert all(belongs(grammar, word) for word in [*words, "b"])
    assert not any(belongs(grammar, word) for word in ("a", "aa", "aag", "", "aaaa"))
