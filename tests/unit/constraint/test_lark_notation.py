"""Expressions as regular expressions: llguidance takes the texts of the expression, and no others."""

from __future__ import annotations

import pytest

from jan_serve.constraint.ast import CharClass, Choice, Expr, Literal, Repeat, RuleRef, Sequence
from jan_serve.constraint.lark_notation import is_atom, quote_regex
from tests.conformance.llguidance_oracle import LlguidanceOracle

DIGIT = CharClass(((0x30, 0x39),))
LONG = CharClass(tuple((code, code) for code in range(0x100, 0x140, 2)))
SIGN = Choice((Literal("+"), Literal("-")))


def deep(levels: int) -> Expr:
    """Groups in one another."""
    expr: Expr = Literal("ab")
    for _ in range(levels):
        expr = Repeat(expr, 1, 2)
    return expr


@pytest.mark.parametrize(
    ("expr", "accepted", "refused"),
    [
        (Sequence((Repeat(SIGN, 0, 1), DIGIT)), ["1", "+1", "-9"], ["", "+", "++1", "a"]),
        (Choice((Sequence((Literal("a"), DIGIT)), Literal("b"))), ["a1", "b"], ["a", "b1", "ab"]),
        (Sequence((Literal("a"), Choice((Literal("b"), Literal("cd"))))), ["ab", "acd"], ["a", "abcd", "cd"]),
        (Repeat(DIGIT, 2, 3), ["12", "123"], ["1", "1234"]),
        (Repeat(Literal("ab"), 1, None), ["ab", "abab"], ["", "aba", "abb"]),
        (Repeat(Literal("ab"), 2, 2), ["abab"], ["ab", "abb"]),
        (
            Sequence((Literal('\\/".*[]{}()|^$?&~#-\n \t'), DIGIT)),
            ['\\/".*[]{}()|^$?&~#-\n \t1'],
            ["1", "x1"],
        ),
        (Choice((Literal("é"), Literal("😀"), Literal("\x01x"))), ["é", "😀", "\x01x"], ["e", "x"]),
        (deep(3), ["ab", "ab" * 8], ["", "ab" * 9]),
    ],
)
def test_the_texts_are_those_of_the_expression(expr: Expr, accepted: list[str], refused: list[str]) -> None:
    text = quote_regex(expr)
    assert text is not None and is_atom(text)
    oracle = LlguidanceOracle()
    matcher = oracle.compile(f"start: T\nT: {text}\n")
    assert [oracle.accepts(matcher, each) for each in (*accepted, *refused)] == [
        *[True] * len(accepted),
        *[False] * len(refused),
    ]


@pytest.mark.parametrize(
    "expr",
    [
        Sequence((Literal("a"), RuleRef("b"))),
        Choice((Literal("a"), Repeat(RuleRef("b"), 0, 1))),
        Sequence((Literal("a"), LONG)),
        Sequence((Literal("a"), Choice((Literal("b"), Literal(""))))),
        Sequence(()),
        deep(100),
    ],
)
def test_other_parts_make_no_regular_expression(expr: Expr) -> None:
    assert quote_regex(expr) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a"', True),
        ('"a\\"b"', True),
        ("/[(]|\\x{2f}/", True),
        ("T_2", True),
        ('"a" "b"', False),
        ("/a/ | /b/", False),
        ("r_a::_", False),
        ("T*", False),
    ],
)
def test_a_single_symbol_needs_no_group(text: str, expected: bool) -> None:
    assert is_atom(text) is expected
