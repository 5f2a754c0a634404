"""Words, and all words but some, against sets of words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import Expr, Grammar
from jan_serve.constraint.automata.dfa import Dfa, of_length
from jan_serve.constraint.automata.to_grammar import other_words_expr, words_expr
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.rules import RuleBuilder, prune
from jan_serve.constraint.text_form import JsonText, PlainText
from tests.unit.constraint.matching import texts
from tests.unit.constraint.recognizer import Recognizer

WORDS = st.lists(st.text("ab", max_size=4), max_size=20, unique=True)
LANGUAGES = {pattern: regex_dfa(full_regex(pattern)) for pattern in (".*", "a*b?", "(ab|b)+", "a{1,3}")}


def _grammar(expr: Expr, rules: RuleBuilder) -> Grammar | None:
    """With the rules that their writer calls complete trusted."""
    return prune(rules.grammar(expr), rules.complete)


@given(WORDS)
def test_words(words: list[str]) -> None:
    rules = RuleBuilder()
    grammar = _grammar(words_expr(tuple(words), PlainText(), rules, "word"), rules)
    found = {text for text in texts("ab", 5) if grammar is not None and Recognizer(grammar).matches(text)}
    assert found == set(words)


@given(WORDS.filter(bool), st.sampled_from(sorted(LANGUAGES)))
def test_other_words(words: list[str], pattern: str) -> None:
    language, rules = LANGUAGES[pattern], RuleBuilder()
    expr = other_words_expr(tuple(words), language, PlainText(), rules, "name")
    grammar = _grammar(expr, rules)
    recognizer = None if grammar is None else Recognizer(grammar)
    for text in texts("abc", 5):
        expected = language.matches(text) and text not in words
        assert (recognizer is not None and recognizer.matches(text)) is expected, text


@pytest.mark.parametrize("word", ["x" * 500, "a", ""])
def test_other_words_of_any_length(word: str) -> None:
    rules = RuleBuilder()
    anything: Dfa = of_length(0, None)
    grammar = _grammar(other_words_expr((word,), anything, JsonText(rules), rules, "name"), rules)
    assert grammar is not None
    recognizer = Recognizer(grammar)
    assert not recognizer.matches(f'{word}"')
    for other in (f"{word}x", f"y{word}", word[:-1] + "é", f"{word}\n"):
        assert recognizer.matches(json.dumps(other)[1:]) is (other != word)
