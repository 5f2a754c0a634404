"""Expressions in their own structure, judged by their automata."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings

from jan_serve.constraint.ast import Literal, sequence
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.json_schema.formats import FORMATS, format_regex
from jan_serve.constraint.regex.ast import Assertion, Regex
from jan_serve.constraint.regex.language import has_assertions, regex_dfa, search_regex
from jan_serve.constraint.regex.structure import structure_expr
from jan_serve.constraint.text_form import JsonText, PlainText
from tests.unit.constraint.recognizer import Recognizer
from tests.unit.constraint.regex.patterns import PATTERNS, TEXTS


def recognizer_of(regex: Regex) -> Recognizer:
    rules = RuleBuilder()
    rules.fill(rules.reserve("root"), structure_expr(regex, PlainText()))
    return Recognizer(rules.grammar("root"))


@settings(max_examples=100)
@given(PATTERNS, TEXTS)
def test_the_words_are_those_of_the_automaton(pattern: str, texts: list[str]) -> None:
    regex = search_regex(pattern)
    assume(not has_assertions(regex))
    recognizer, dfa = recognizer_of(regex), regex_dfa(regex)
    for text in texts:
        assert recognizer.matches(text) is dfa.matches(text), (pattern, text)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_structure(name: str) -> None:
    assert not has_assertions(format_regex(name))
    structure_expr(format_regex(name), PlainText())


def test_characters_have_every_spelling_of_the_form() -> None:
    rules = RuleBuilder()
    form = JsonText(rules)
    rules.reserve("root")
    rules.fill("root", sequence([Literal('"'), structure_expr(search_regex("^(é|x)+$"), form), form.tail]))
    recognizer = Recognizer(rules.grammar("root"))
    assert [text for text in ('"éx\\u00e9"', '"\\u0078"', '""') if recognizer.matches(text)] == [
        '"éx\\u00e9"'
    ]


def test_an_assertion_has_no_text() -> None:
    with pytest.raises(ValueError, match="assertion"):
        structure_expr(Assertion("b"), PlainText())
