"""The constructors simplify an expression and keep what it means."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import (
    EMPTY,
    NEVER,
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
from tests.unit.constraint.matching import EXPRESSIONS, language

A, B, REF = Literal("a"), Literal("b"), RuleRef("r")
LISTS = st.lists(EXPRESSIONS | st.sampled_from([NEVER, EMPTY]), max_size=3)


def _texts(expr: Expr) -> set[str]:
    return language(Grammar({"root": expr}), "ab", 4)


@given(LISTS)
def test_a_sequence_and_a_choice_keep_their_texts(items: list[Expr]) -> None:
    assert _texts(sequence(items)) == _texts(Sequence(tuple(items)))
    assert _texts(choice(items)) == _texts(Choice(tuple(items)))


@given(EXPRESSIONS, st.integers(0, 3), st.none() | st.integers(0, 3))
def test_a_repetition_keeps_its_texts(item: Expr, low: int, high: int | None) -> None:
    assert _texts(repeat(item, low, high)) == _texts(Repeat(item, low, high))
