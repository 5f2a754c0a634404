"""References, pruning and renaming of whole grammars."""

from __future__ import annotations

import pytest
from hypothesis import given

from jan_serve.constraint.ast import (
    Choice,
    Grammar,
    Literal,
    Repeat,
    RuleRef,
    Sequence,
    Terminal,
    choice,
    optional,
    sequence,
)
from jan_serve.constraint.transform import prune, references, rename
from tests.unit.constraint.matching import GRAMMARS, language

A, B = Literal("a"), Literal("b")
NESTED = Sequence((A, Choice((RuleRef("x"), Repeat(Terminal(RuleRef("y")), 0, 2))), RuleRef("x")))


def test_references_are_found_at_any_depth() -> None:
    assert references(NESTED) == {"x", "y"}
    assert references(A) == set()


def test_a_renamed_expression_refers_to_other_rules_only() -> None:
    renamed = rename(NESTED, {"x": "z", "other": "y"})
    assert references(renamed) == {"z", "y"}
    assert rename(renamed, {"z": "x"}) == NESTED


@given(GRAMMARS)
def test_pruning_keeps_the_texts(grammar: Grammar) -> None:
    texts = language(grammar, "ab", 4)
    pruned = prune(grammar)
    assert pruned is not None
    assert language(pruned, "ab", 4) == texts


LOOP = sequence([A, RuleRef("loop")])
PRUNED: dict[str, tuple[Grammar, dict[str, object] | None]] = {
    "an endless alternative": (Grammar({"root": choice([B, RuleRef("loop")]), "loop": LOOP}), {"root": B}),
    "an endless option": (
        Grammar({"root": sequence([B, optional(RuleRef("loop"))]), "loop": LOOP}),
        {"root": B},
    ),
    "a token of it": (
        Grammar({"root": Choice((B, Terminal(RuleRef("loop")))), "loop": LOOP}),
        {"root": B},
    ),
    "rules that only lead there": (
        Grammar({"root": choice([B, RuleRef("on")]), "on": sequence([RuleRef("loop"), A]), "loop": LOOP}),
        {"root": B},
    ),
    "rules that wait for one another": (
        Grammar({"root": choice([B, RuleRef("x")]), "x": RuleRef("y"), "y": RuleRef("x")}),
        {"root": B},
    ),
    "a rule that is no longer reached": (
        Grammar(
            {
                "root": choice([B, sequence([RuleRef("own"), RuleRef("loop")])]),
                "own": A,
                "loop": LOOP,
            }
        ),
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


def test_rules_known_to_be_complete_are_not_examined() -> None:
    """`known` is taken at its word; the rest is pruned as before."""
    grammar = Grammar(
        {
            "root": choice([RuleRef("known"), RuleRef("loop")]),
            "known": sequence([A, RuleRef("part")]),
            "part": B,
            "loop": sequence([RuleRef("known"), RuleRef("loop")]),
        }
    )
    pruned = prune(grammar, {"known", "part"})
    assert pruned is not None
    assert pruned.rules == {name: grammar.rules[name] for name in ("known", "part")} | {
        "root": RuleRef("known")
    }
