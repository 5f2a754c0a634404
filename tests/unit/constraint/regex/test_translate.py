"""These tests judge patterns as grammars of whole texts, flat expressions, and expressions in their own structure."""

from __future__ import annotations

import re
import time
from typing import TypeAlias

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jan_serve.constraint.ast import Grammar, Literal, sequence
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.regex.language import (
    flat_pieces,
    full_regex,
    has_assertions,
    pieces_expr,
    regex_dfa,
    search_regex,
    structure_expr,
)
from jan_serve.constraint.regex.language import translate as regex_to_grammar
from jan_serve.constraint.regex.syntax import Regex
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import JsonText, PlainText
from jan_serve.errors import GrammarTooComplex, UnsupportedPattern
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.matching import texts
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


Counts: TypeAlias = tuple[int, int | None]
COUNTS: st.SearchStrategy[Counts] = st.sampled_from([(1, 1), (2, 2), (0, 1), (1, 2), (0, None), (2, None)])


def spelled(piece: tuple[str, Counts]) -> str:
    chars, (low, high) = piece
    return f"{chars}{{{low},{'' if high is None else high}}}"


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "[ab]", "c"]), COUNTS), min_size=1, max_size=4))
def test_a_flat_expression_keeps_its_texts(pieces: list[tuple[str, Counts]]) -> None:
    pattern = "".join(map(spelled, pieces))
    found = flat_pieces(full_regex(pattern))
    if found is None:
        # Only a piece of several counts can run into what follows it.
        assert any(low != high for _, (low, high) in pieces[:-1])
        return
    recognizer, expected = (
        Recognizer(Grammar({"root": sequence(pieces_expr(found, PlainText()))})),
        re.compile(pattern),
    )
    for text in texts("abc", 6):
        assert recognizer.matches(text) is bool(expected.fullmatch(text)), (pattern, text)


def recognizer_of(regex: Regex) -> Recognizer:
    rules = RuleBuilder()
    return Recognizer(rules.grammar(structure_expr(regex, PlainText())))


@settings(max_examples=100)
@given(PATTERNS, TEXTS)
def test_the_words_are_those_of_the_automaton(pattern: str, texts: list[str]) -> None:
    regex = search_regex(pattern)
    assume(not has_assertions(regex))
    recognizer, dfa = recognizer_of(regex), regex_dfa(regex)
    for text in texts:
        assert recognizer.matches(text) is dfa.matches(text), (pattern, text)


def test_characters_have_every_spelling_of_the_form() -> None:
    rules = RuleBuilder()
    form = JsonText(rules)
    expr = sequence([Literal('"'), structure_expr(search_regex("^(é|x)+$"), form), form.tail])
    recognizer = Recognizer(rules.grammar(expr))
    assert [text for text in ('"éx\\u00e9"', '"\\u0078"', '""') if recognizer.matches(text)] == [
        '"éx\\u00e9"'
    ]
