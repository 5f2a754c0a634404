"""Printed GBNF is read again with the same meaning, in few rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import CharClass, Grammar, Literal, RuleRef, Special
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet, char_set, complement
from jan_serve.constraint.limits import MAX_PRINTED_BYTES
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf, quote_class, quote_literal
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.matching import GRAMMARS, belongs, texts
from tests.unit.constraint.recognizer import Recognizer

CODES = st.one_of(st.integers(1, 0x100), st.integers(1, 0xD7FF), st.integers(0xE000, MAX_CODE_POINT))


@given(GRAMMARS)
def test_a_printed_grammar_keeps_its_texts(grammar: Grammar) -> None:
    again = Recognizer(parse_gbnf(print_gbnf(grammar)))
    for text in texts("ab", 5):
        assert again.matches(text) is belongs(grammar, text), text


@given(st.lists(CODES, min_size=1, max_size=6))
def test_any_literal_can_be_printed(codes: list[int]) -> None:
    text = "".join(map(chr, codes))
    assert parse_gbnf(f"root ::= {quote_literal(text)}").rules["root"] == Literal(text)


@given(st.lists(st.tuples(CODES, st.integers(0, 40)), min_size=1, max_size=4), st.booleans())
def test_any_class_can_be_printed(ranges: list[tuple[int, int]], excluded: bool) -> None:
    chars: CharSet = char_set((low, min(low + more, MAX_CODE_POINT)) for low, more in ranges)
    chars = complement(chars) if excluded else chars
    assert parse_gbnf(f"root ::= {quote_class(chars)}").rules["root"] == CharClass(chars)


@pytest.mark.parametrize(
    "bounds", [(0, 33), (0, 100), (31, 64), (100, 100), (40, None), (7, 1000), (0, 4096)]
)
def test_long_repetitions_are_printed_with_few_rules(bounds: tuple[int, int | None]) -> None:
    low, high = bounds
    text = print_gbnf(parse_gbnf(f'root ::= ("a" | "b"){{{low},{"" if high is None else high}}} "!"'))
    assert len(text.splitlines()) < 50
    recognizer = Recognizer(parse_gbnf(text))
    most = low + 70 if high is None else high
    for count in {0, low - 1, low, low + 1, (low + most) // 2, most - 1, most, most + 1}:
        expected = count >= low and (high is None or count <= high)
        if count >= 0:
            assert recognizer.matches("ab" * (count // 2) + "b" * (count % 2) + "!") is expected, count


def test_the_start_rule_is_always_printed_as_root() -> None:
    grammar = Grammar({"root": Literal("x"), "root-1": Literal("y"), "main": RuleRef("root")}, root="main")
    text = print_gbnf(grammar)
    assert text.startswith("root ::= ")
    assert Recognizer(parse_gbnf(text)).matches("x")


def test_a_control_token_is_printed_as_its_text() -> None:
    assert print_gbnf(Grammar({"root": Special("<|end|>")})) == 'root ::= "<|end|>"\n'


def test_the_printed_size_is_limited() -> None:
    rules = {"root": Literal("a" * MAX_PRINTED_BYTES)}
    with pytest.raises(GrammarTooComplex, match=str(MAX_PRINTED_BYTES)):
        print_gbnf(Grammar(dict(rules)))
