"""The recognizer against the definition of a grammar."""

from __future__ import annotations

import pytest
from hypothesis import given

from jan_serve.constraint.ast import Grammar, Literal, Until, sequence
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.parse_gbnf import parse_gbnf
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.support.drawn_grid import some
from tests.unit.constraint.matching import GRAMMARS, belongs, language, texts
from tests.unit.constraint.recognizer import Recognizer


@given(GRAMMARS)
def test_it_accepts_the_texts_of_the_grammar(grammar: Grammar) -> None:
    recognizer = Recognizer(grammar)
    for text in texts("ab", 5):
        assert recognizer.matches(text) is belongs(grammar, text), text


FINITE = ('root ::= "ab" ("a" | "ba"){1,2} | "b"', 'root ::= "a"? "b"? "a"', 'root ::= [ab]{2} "b" | ""')


@pytest.mark.parametrize("text", FINITE)
def test_it_says_where_a_text_leaves(text: str) -> None:
    grammar = parse_gbnf(text)
    recognizer, words = Recognizer(grammar), language(grammar, "ab", 7)
    for candidate in texts("abx", 6):
        begun = [n for n in range(len(candidate) + 1) if any(w.startswith(candidate[:n]) for w in words)]
        expected = None if candidate in words else max(begun)
        assert recognizer.leaves_at(candidate) == expected, candidate


@pytest.mark.drawn
@pytest.mark.parametrize("closing", ["]]", ""])
@pytest.mark.parametrize(("low", "high"), [(0, None), (0, 2), (2, None)])
def test_text_until_a_stop_may_be_a_section(low: int, high: int | None, closing: str) -> None:
    until = Until(low, high, "|", section=("[a", closing))
    grammar = Grammar({"root": sequence([Literal("."), until, Literal(".")])})
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for inner in some(texts("[a]|", 6), 700):
        for text in (f".{inner}.", f".{inner}|.", f".[a{inner}]]|."):
            expected = belongs(grammar, text)
            assert recognizer.matches(text) == expected, text
            assert oracle.accepts(matcher, text) == expected, text


@pytest.mark.parametrize("stop", ["</>", "|", "ab", "aab"])
@pytest.mark.parametrize(("low", "high"), [(0, None), (0, 2), (1, 1), (2, 3), (1, None)])
def test_text_until_a_stop(stop: str, low: int, high: int | None) -> None:
    """The readers of trees, the Lark print and the definition agree."""
    grammar = Grammar({"root": sequence([Literal("."), Until(low, high, stop), Literal(".")])})
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for inner in texts("".join(sorted({*"a", *stop})), 5):
        for text in (f".{inner}.", f".{inner}{stop}."):
            expected = belongs(grammar, text)
            assert recognizer.matches(text) == expected, text
            assert oracle.accepts(matcher, text) == expected, text
