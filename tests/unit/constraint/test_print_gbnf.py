"""Printed GBNF is read again with the same meaning, in few rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import CharClass, Grammar, Literal, RuleRef, Special, sequence
from jan_serve.constraint.charset import ANY, MAX_CODE_POINT, CharSet, char_set, complement, of_chars
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
    ("chars", "text"),
    [
        (ANY, "."),
        (of_chars("a"), "[a]"),
        (of_chars("ab"), "[ab]"),
        (of_chars("abc"), "[a-c]"),
        (of_chars("]^-"), "[\\x2D\\]\\x5E]"),
        (complement(of_chars('"\n')), '[^\\n\\"]'),
        (((0x80, 0xFF), (0x4E00, 0x9FFF)), "[\\x80-\\xFF\\u4E00-\\u9FFF]"),
        (((0x1F600, 0x1F600),), "[\\U0001F600]"),
    ],
)
def test_classes_are_short(chars: CharSet, text: str) -> None:
    assert quote_class(chars) == text


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


def test_a_long_class_is_written_once() -> None:
    chars = char_set((0x100 + 4 * n, 0x101 + 4 * n) for n in range(30))
    text = print_gbnf(Grammar({"root": sequence([CharClass(chars), Literal("-"), CharClass(chars)])}))
    assert text.count("\\u0100") == 1
    assert Recognizer(parse_gbnf(text)).matches("\u0100-\u0101")


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
