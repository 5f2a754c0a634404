"""Lark text whose references and groups lie deep: llguidance compiles it in a process of its own, on a small stack."""

from __future__ import annotations

import pytest

from jan_serve.constraint.ast import CharClass, Grammar, Literal, Repeat, Sequence, Terminal
from jan_serve.constraint.lark.print_lark import OnlyCharacters, print_lark, print_lark_open
from jan_serve.engine.constraint.grammar_factory import check_lark
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.grammars import grammar_alone


@pytest.mark.parametrize("count", [1000, 1700, 1900, 2500, 3300, 5000])
def test_groups_count_for_the_depth_of_what_is_printed(count: int) -> None:
    """A rule for every five items, and five groups around the reference to the next: few rules are deep, too."""
    check_lark(print_lark(grammar_alone({"type": "array", "prefixItems": [{"type": "integer"}] * count})))


def test_long_cycles_are_refused() -> None:
    """Multiples of 2999 by digits: each of thousands of remainders leads to ten others."""
    grammar = grammar_alone({"type": "integer", "multipleOf": 2999})
    with pytest.raises(GrammarTooComplex, match="1000 levels"):
        print_lark(grammar)


def test_what_only_terminals_describe_is_not_written_as_characters() -> None:
    string = Terminal(
        Sequence((Literal('"'), Repeat(CharClass(((97, 99),)), 0, None), Literal('"'))), lark_only=True
    )
    grammar = Grammar({"root": string})
    assert print_lark_open(grammar).lark.startswith("start: T")
    with pytest.raises(OnlyCharacters):
        print_lark_open(grammar, terminals=False)
