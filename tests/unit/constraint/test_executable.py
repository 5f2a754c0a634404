"""These tests check rules that an executor can run:

the same texts, without left recursion, long chains and exponential growth.
"""

from __future__ import annotations

import pytest
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
    choice,
    optional,
    repeat,
    sequence,
)
from jan_serve.constraint.limits import MAX_LEFT_CHAIN
from jan_serve.constraint.parse_gbnf import check_rules, is_nullable, normalise, nullable_rules
from jan_serve.errors import InvalidGrammar
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


def test_many_words_become_a_trie() -> None:
    words = [f"a{first}{second}" for first in "abcdef" for second in "abcdef"]
    grammar = normalise(Grammar({"root": Choice((*(Literal(word) for word in words), RuleRef("b"))), "b": B}))
    assert isinstance(grammar.rules["root"], Choice)
    assert len(grammar.rules["root"].items) == 2
    assert all(belongs(grammar, word) for word in [*words, "b"])
    assert not any(belongs(grammar, word) for word in ("a", "aa", "aag", "", "aaaa"))


LETTER_A, SELF = Literal("a"), RuleRef("root")


def check(rules: dict[str, Expr]) -> None:
    check_rules(rules, {name: line for line, name in enumerate(rules, 1)})


@given(GRAMMARS)
def test_nullable_rules_are_those_with_the_empty_text(grammar: Grammar) -> None:
    nullable = nullable_rules(grammar.rules)
    for name, expr in grammar.rules.items():
        empty = belongs(Grammar(grammar.rules, name), "")
        assert (name in nullable) is empty
        assert is_nullable(expr, nullable) is empty


REFUSED: dict[str, tuple[dict[str, Expr], int, str]] = {
    "not defined": ({"root": LETTER_A, "b": sequence([LETTER_A, RuleRef("c")])}, 2, "'c' is not defined"),
    "itself": ({"root": choice([LETTER_A, sequence([SELF, LETTER_A])])}, 1, "'root' starts with itself"),
    "itself after a repetition": (
        {"root": sequence([repeat(LETTER_A, 0, None), SELF])},
        1,
        "starts with itself",
    ),
    "itself in a token": (
        {"root": choice([LETTER_A, Terminal(sequence([SELF, LETTER_A]))])},
        1,
        "starts with itself",
    ),
    "itself repeated": ({"root": repeat(SELF, 2, 3)}, 1, "starts with itself"),
    "through a rule that may be empty": (
        {
            "root": sequence([RuleRef("x"), RuleRef("y")]),
            "x": optional(LETTER_A),
            "y": choice([LETTER_A, SELF]),
        },
        1,
        "starts with itself",
    ),
    "two rules in turn, off the root": (
        {"root": LETTER_A, "x": sequence([RuleRef("y"), LETTER_A]), "y": sequence([RuleRef("x"), LETTER_A])},
        2,
        "'x' starts with itself",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_rule_and_line(name: str) -> None:
    rules, line, reason = REFUSED[name]
    with pytest.raises(InvalidGrammar) as caught:
        check(rules)
    assert caught.value.line == line
    assert reason in caught.value.reason


@pytest.mark.parametrize(("rules", "fine"), [(MAX_LEFT_CHAIN, True), (MAX_LEFT_CHAIN + 1, False)])
def test_a_chain_of_first_rules_is_limited(rules: int, fine: bool) -> None:
    chain: dict[str, Expr] = {f"r{n}": RuleRef(f"r{n + 1}") for n in range(rules - 1)}
    chain[f"r{rules - 1}"] = LETTER_A
    if fine:
        check(chain)
        return
    with pytest.raises(InvalidGrammar, match=f"'r0' starts a chain of more than {MAX_LEFT_CHAIN}"):
        check(chain)
