"""Right-linear rules as regular expressions, judged by Python's `re`."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import (
    Expr,
    Grammar,
    Literal,
    RuleRef,
    choice,
    sequence,
)
from jan_serve.constraint.lark.references import NotRegular, solve
from tests.unit.constraint.matching import belongs, texts

NAMES = ("root", "r1", "r2", "r3")
A, B = Literal("a"), Literal("b")
STEPS = st.tuples(st.sampled_from(["a", "b", "ab"]), st.sampled_from(NAMES))


def _render(expr: Expr) -> str:
    """The literals and groups of literals that these tests use, for `re`."""
    if isinstance(expr, Literal):
        return expr.text
    assert not isinstance(expr, RuleRef)
    parts = [_render(item) for item in getattr(expr, "items", ())]
    return "(?:" + ("|" if type(expr).__name__ == "Choice" else "").join(parts) + ")"


def _solved(rules: dict[str, Expr]) -> re.Pattern[str]:
    printed = solve(rules, _render, lambda text: f"(?:{text})")
    return re.compile(printed["root"].replace('""', "(?:)"), re.VERBOSE)


def _body(steps: list[tuple[str, str]], end: str | None) -> Expr:
    moves = [sequence([Literal(text), RuleRef(name)]) for text, name in steps]
    return choice([*moves, *([] if end is None else [Literal(end) if end else sequence([])])])


@given(
    st.tuples(*(st.lists(STEPS, max_size=3) for _ in NAMES)),
    st.tuples(*(st.sampled_from(["", "a", "b"]) for _ in NAMES)),
)
def test_the_expression_has_the_texts_of_the_rules(
    steps: tuple[list[tuple[str, str]], ...], ends: tuple[str, ...]
) -> None:
    rules = {name: _body(own, end) for name, own, end in zip(NAMES, steps, ends, strict=True)}
    pattern, grammar = _solved(rules), Grammar(rules)
    for text in texts("ab", 5):
        assert bool(pattern.fullmatch(text)) is belongs(grammar, text), (text, pattern.pattern)


def test_many_rules_are_left_alone() -> None:
    rules: dict[str, Expr] = {f"r{n}": sequence([A, RuleRef(f"r{n + 1}")]) for n in range(150)}
    with pytest.raises(NotRegular):
        _solved({"root": RuleRef("r0"), **rules, "r150": B})
