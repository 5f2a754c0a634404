"""Names of rules under construction, and pruning of whole grammars."""

from __future__ import annotations

import pytest

from jan_serve.constraint.ast import Choice, Grammar, Literal, RuleRef, Terminal, choice, optional, sequence
from jan_serve.constraint.limits import MAX_RULES
from jan_serve.constraint.rules import RuleBuilder, prune
from jan_serve.errors import GrammarTooComplex

A, B = Literal("a"), Literal("b")


LOOP = sequence([A, RuleRef("loop")])
PRUNED: dict[str, tuple[Grammar, dict[str, object] | None]] = {
    "an endless alternative": (Grammar({"root": choice([B, RuleRef("loop")]), "loop": LOOP}), {"root": B}),
    "an endless option": (
        Grammar({"root": sequence([B, optional(RuleRef("loop"))]), "loop": LOOP}),
        {"root": B},
    ),
    "a token of it": (Grammar({"root": Choice((B, Terminal(RuleRef("loop")))), "loop": LOOP}), {"root": B}),
    "rules that only lead there": (
        Grammar({"root": choice([B, RuleRef("on")]), "on": sequence([RuleRef("loop"), A]), "loop": LOOP}),
        {"root": B},
    ),
    "rules that wait for one another": (
        Grammar({"root": choice([B, RuleRef("x")]), "x": RuleRef("y"), "y": RuleRef("x")}),
        {"root": B},
    ),
    "a rule that is no longer reached": (
        Grammar({"root": choice([B, sequence([RuleRef("own"), RuleRef("loop")])]), "own": A, "loop": LOOP}),
        {"root": B},
    ),
    "the start rule": (Grammar({"root": sequence([B, RuleRef("loop")]), "loop": LOOP}), None),
    "recursion with an end": (
        Grammar({"root": choice([B, sequence([A, RuleRef("root")])])}),
        {"root": choice([B, sequence([A, RuleRef("root")])])},
    ),
}


@pytest.mark.parametrize("name", PRUNED)
def test_what_no_text_completes_is_pruned(name: str) -> None:
    grammar, expected = PRUNED[name]
    pruned = prune(grammar)
    assert (None if pruned is None else pruned.rules) == expected


def test_the_number_of_rules_is_limited() -> None:
    rules = RuleBuilder()
    for number in range(1, MAX_RULES):
        rules.reserve(f"r{number}")
    with pytest.raises(GrammarTooComplex, match=str(MAX_RULES)):
        rules.reserve("one-more")
