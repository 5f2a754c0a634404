"""The constructors simplify an expression and keep what it means."""

from __future__ import annotations

import pytest
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
    Terminal,
    choice,
    optional,
    repeat,
    sequence,
    terminal,
)
from tests.unit.constraint.matching import EXPRESSIONS, language

A, B, REF = Literal("a"), Literal("b"), RuleRef("r")
LISTS = st.lists(EXPRESSIONS | st.sampled_from([NEVER, EMPTY]), max_size=3)

SIMPLIFIED: dict[str, tuple[Expr, Expr]] = {
    "neighbouring literals are joined": (sequence([A, B, REF, B]), Sequence((Literal("ab"), REF, B))),
    "joined through a nested sequence": (sequence([A, Sequence((B, REF))]), Sequence((Literal("ab"), REF))),
    "one part stands alone": (sequence([EMPTY, REF]), REF),
    "nothing is the empty text": (sequence([]), EMPTY),
    "an impossible part": (sequence([A, NEVER, B]), NEVER),
    "nested choices are opened": (choice([A, Choice((B, REF))]), Choice((A, B, REF))),
    "duplicates are dropped": (choice([A, B, A]), Choice((A, B))),
    "an impossible alternative": (choice([NEVER, A]), A),
    "no alternative": (choice([NEVER]), NEVER),
    "bounds out of order": (repeat(A, 2, 1), NEVER),
    "zero times": (repeat(A, 0, 0), EMPTY),
    "the empty text repeated": (repeat(EMPTY, 3, None), EMPTY),
    "nothing, no times": (repeat(NEVER, 0, None), EMPTY),
    "nothing, once": (repeat(NEVER, 1, 3), NEVER),
    "exactly once": (repeat(A, 1, 1), A),
    "optional": (optional(A), Repeat(A, 0, 1)),
    "an impossible token": (terminal(NEVER), NEVER),
    "a token": (terminal(A), Terminal(A)),
}


@pytest.mark.parametrize("name", SIMPLIFIED)
def test_simplified(name: str) -> None:
    made, expected = SIMPLIFIED[name]
    assert made == expected


def _texts(expr: Expr) -> set[str]:
    return language(Grammar({"root": expr}), "ab", 4)


@given(LISTS)
def test_a_sequence_and_a_choice_keep_their_texts(items: list[Expr]) -> None:
    assert _texts(sequence(items)) == _texts(Sequence(tuple(items)))
    assert _texts(choice(items)) == _texts(Choice(tuple(items)))


@given(EXPRESSIONS, st.integers(0, 3), st.none() | st.integers(0, 3))
def test_a_repetition_keeps_its_texts(item: Expr, low: int, high: int | None) -> None:
    assert _texts(repeat(item, low, high)) == _texts(Repeat(item, low, high))
