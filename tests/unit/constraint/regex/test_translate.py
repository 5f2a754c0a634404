"""A pattern as a grammar of whole texts, judged by the recognizer and by llguidance."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings

from jan_serve.constraint.print_lark import print_lark
from jan_serve.constraint.regex.translate import translate as regex_to_grammar
from jan_serve.errors import GrammarTooComplex, UnsupportedPattern
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.recognizer import Recognizer
from tests.unit.constraint.regex.patterns import PATTERNS, TEXTS, python


@settings(max_examples=150)
@given(PATTERNS, TEXTS)
def test_grammar_matches_the_whole_text(pattern: str, texts: list[str]) -> None:
    try:
        grammar = regex_to_grammar(pattern)
    except UnsupportedPattern as error:
        assert error.reason == "no text matches the expression"
        return
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    expected = python(pattern)
    for text in texts:
        wanted = bool(expected.fullmatch(text))
        assert recognizer.matches(text) == wanted, (pattern, text)
        assert oracle.accepts(matcher, text) == wanted, (pattern, text)


@pytest.mark.parametrize(
    "pattern", [f"^{'a?' * 3900}$", "a*" * 6000, "".join(f"[^{chr(n)}]?" for n in range(0x4E00, 0x5400))]
)
def test_expensive_pattern_is_refused_in_bounded_time(pattern: str) -> None:
    started = time.process_time()
    with pytest.raises(GrammarTooComplex):
        regex_to_grammar(pattern)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("pattern", ["(ab?){1900}", "(a|b)" * 2000])
def test_long_pattern_takes_bounded_time(pattern: str) -> None:
    started = time.process_time()
    print_lark(regex_to_grammar(pattern))
    assert time.process_time() - started < 5
