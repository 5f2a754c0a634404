"""Names of rules under construction."""

from __future__ import annotations

import pytest

from jan_serve.constraint.ast import NEVER, Literal, RuleRef
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.limits import MAX_RULES
from jan_serve.errors import GrammarTooComplex


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        ("First Name", "first-name"),
        ("__a.b__", "a-b"),
        ("größe", "gr-e"),
        ("😀", "rule"),
        ("", "rule"),
        ("x" * 100, "x" * 40),
    ],
)
def test_a_name_is_made_from_the_hint(hint: str, name: str) -> None:
    assert RuleBuilder().reserve(hint) == name


def test_no_two_rules_have_one_name() -> None:
    rules = RuleBuilder()
    rules.adopt("item-3")
    names = [rules.reserve(hint) for hint in ("item", "item", "Item", "item-2", "item")]
    assert names == ["item", "item-2", "item-4", "item-2-2", "item-5"]
    assert rules.rules == {"item-3": NEVER}


def test_rules_are_defined_at_once_or_in_two_steps() -> None:
    rules = RuleBuilder()
    name = rules.reserve("list", complete=True)
    ref = rules.define("entry", RuleRef(name))
    rules.fill(name, Literal("x"))
    grammar = rules.grammar(ref.name)
    assert grammar.rules == {"entry": RuleRef("list"), "list": Literal("x")}
    assert grammar.root == "entry"
    assert rules.complete == {"list"}


def test_the_number_of_rules_is_limited() -> None:
    rules = RuleBuilder()
    for number in range(MAX_RULES):
        rules.reserve(f"r{number}")
    with pytest.raises(GrammarTooComplex, match=str(MAX_RULES)):
        rules.reserve("one-more")
