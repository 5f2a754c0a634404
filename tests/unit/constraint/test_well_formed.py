"""Rules that an executor can run: defined, not left-recursive, in short chains."""

from __future__ import annotations

import pytest
from hypothesis import given

from jan_serve.constraint.ast import (
    Expr,
    Grammar,
    Literal,
    RuleRef,
    Terminal,
    choice,
    optional,
    repeat,
    sequence,
)
from jan_serve.constraint.limits import MAX_LEFT_CHAIN
from jan_serve.constraint.well_formed import check_rules, is_nullable, nullable_rules
from jan_serve.errors import InvalidGrammar
from tests.unit.constraint.matching import GRAMMARS, belongs

A, SELF = Literal("a"), RuleRef("root")


def check(rules: dict[str, Expr]) -> None:
    check_rules(rules, {name: line for line, name in enumerate(rules, 1)})


@given(GRAMMARS)
def test_nullable_rules_are_those_with_the_empty_text(grammar: Grammar) -> None:
    nullable = nullable_rules(grammar.rules)
    for name, expr in grammar.rules.items():
        empty = belongs(Grammar(grammar.rules, name), "")
        assert (name in nullable) is empty
        assert is_nullable(expr, nullable) is empty


def test_nullable_rules_through_recursion() -> None:
    rules: dict[str, Expr] = {
        "list": optional(sequence([A, RuleRef("list")])),
        "lists": sequence([RuleRef("list"), repeat(RuleRef("list"), 2, 2)]),
        "loop": RuleRef("loop"),
        "solid": sequence([RuleRef("lists"), A]),
    }
    assert nullable_rules(rules) == {"list", "lists"}


REFUSED: dict[str, tuple[dict[str, Expr], int, str]] = {
    "not defined": ({"root": A, "b": sequence([A, RuleRef("c")])}, 2, "'c' is not defined"),
    "itself": ({"root": choice([A, sequence([SELF, A])])}, 1, "'root' starts with itself"),
    "itself after a repetition": ({"root": sequence([repeat(A, 0, None), SELF])}, 1, "starts with itself"),
    "itself in a token": ({"root": choice([A, Terminal(sequence([SELF, A]))])}, 1, "starts with itself"),
    "itself repeated": ({"root": repeat(SELF, 2, 3)}, 1, "starts with itself"),
    "through a rule that may be empty": (
        {"root": sequence([RuleRef("x"), RuleRef("y")]), "x": optional(A), "y": choice([A, SELF])},
        1,
        "starts with itself",
    ),
    "two rules in turn, off the root": (
        {"root": A, "x": sequence([RuleRef("y"), A]), "y": sequence([RuleRef("x"), A])},
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


def test_recursion_behind_a_character_is_fine() -> None:
    check({"root": choice([A, sequence([A, SELF, SELF])])})


@pytest.mark.parametrize(("rules", "fine"), [(MAX_LEFT_CHAIN, True), (MAX_LEFT_CHAIN + 1, False)])
def test_a_chain_of_first_rules_is_limited(rules: int, fine: bool) -> None:
    chain: dict[str, Expr] = {f"r{n}": RuleRef(f"r{n + 1}") for n in range(rules - 1)}
    chain[f"r{rules - 1}"] = A
    if fine:
        check(chain)
        return
    with pytest.raises(InvalidGrammar, match=f"'r0' starts a chain of more than {MAX_LEFT_CHAIN}"):
        check(chain)


def test_a_rule_that_many_share_is_no_chain() -> None:
    """Each rule starts with both rules after it: the paths double, the chain grows by one."""
    rules: dict[str, Expr] = {
        f"r{n}": choice([RuleRef(f"r{n + 1}"), RuleRef(f"r{n + 2}")]) for n in range(200)
    }
    check(rules | {"r200": A, "r201": A})
