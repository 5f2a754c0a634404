"""String sets as text: every string of the set, closed, in its own structure where that is deterministic."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import Terminal
from jan_serve.constraint.json_schema.emit_strings import string_expr, string_terminal
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import AllOf, Length, OneOfStrings, Pattern, StringSet
from jan_serve.constraint.limits import MAX_STEPS, budget, spent
from jan_serve.constraint.regex.language import regex_dfa
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import JsonText
from tests.unit.constraint.json_schema.string_sets import in_set
from tests.unit.constraint.matching import texts
from tests.unit.constraint.recognizer import Recognizer

TEXTS = [*texts("ab", 4), 'a"', "é", "ab\n", "\\a"]
LEAVES: st.SearchStrategy[StringSet] = st.one_of(
    st.lists(st.sampled_from(TEXTS), max_size=12, unique=True).map(
        lambda values: OneOfStrings(tuple(values))
    ),
    st.builds(Length, st.integers(0, 2), st.none() | st.integers(2, 4)),
    st.sampled_from(["^a", "b$", "^[ab]{1,3}$", "^a*b$", "aa|b"]).map(Pattern),
)
SETS = LEAVES | st.builds(strings.intersect, LEAVES, LEAVES) | st.builds(strings.complement, LEAVES)


@given(SETS)
def test_the_strings_of_a_set(allowed: StringSet) -> None:
    rules = RuleBuilder()
    expr = string_expr(allowed, JsonText(rules), rules, "text")
    recognizer = Recognizer(rules.grammar(expr))
    for text in TEXTS:
        written = json.dumps(text)[1:]
        assert recognizer.matches(written) is in_set(allowed, text), text
        assert not recognizer.matches(written[:-1])


@pytest.mark.parametrize(
    ("pattern", "begins", "more"),
    [
        ("^ab*$", ["a"], "b"),
        ("^(a|ba|abb)[ab]*$", ["a", "ba"], "b"),
        ("^(ba|bbba)a*$|^b$", ["ba", "bbba"], "a"),
    ],
)
@pytest.mark.parametrize(("low", "high"), [(0, 64), (3, 64), (64, 64), (1, 5000)])
def test_a_long_tail_beside_a_bound(pattern: str, begins: list[str], more: str, low: int, high: int) -> None:
    allowed = AllOf((Pattern(pattern), Length(low, high)))
    assert strings.bounded_tails(allowed) is not None and not strings.is_empty(allowed)
    rules = RuleBuilder()
    recognizer = Recognizer(rules.grammar(string_expr(allowed, JsonText(rules), rules, "text")))
    for length in (1, 2, 3, 4, 5, 62, 63, 64, 65, high - 1, high, high + 1):
        for begin in begins:
            if length >= len(begin):
                text = begin + more * (length - len(begin))
                assert recognizer.matches(f'{text}"') is (low <= length <= high), (text, length)
                assert not recognizer.matches(f'{text}c"')


@pytest.mark.parametrize(
    ("allowed", "is_free"),
    [
        (Pattern("ok"), True),
        (Pattern("\\.js$"), True),
        (strings.intersect(Pattern("a"), Pattern("b")), True),
        (strings.complement(Pattern("a$")), True),
        (Pattern("^ok"), False),
        (strings.intersect(Pattern("ok"), Length(0, 20)), False),
        (strings.complement(Pattern("ok")), False),
        (OneOfStrings(("a", "b")), False),
        (Length(2, None), False),
    ],
)
def test_a_token_is_free_where_any_text_begins_it(allowed: StringSet, is_free: bool) -> None:
    rules = RuleBuilder()
    found = string_terminal(allowed, JsonText(rules), rules, "text")
    assert isinstance(found, Terminal) and found.is_free is is_free


@given(SETS, st.integers(0, 3), st.none() | st.integers(64, 70))
def test_a_set_with_great_bounds_is_empty_if_no_string_is_in_it(
    allowed: StringSet, low: int, high: int | None
) -> None:
    found = strings.intersect(allowed, Length(low, high))
    assert strings.is_empty(found) is strings.string_dfa(found).is_empty()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("^a[0-2]{1}b$", ("a0b", "a1b", "a2b")),
        ("^(x|[ab])$", ("x", "a", "b")),
        ("^[01]{2}$", ("00", "01", "10", "11")),
        ("^a{3}$", ("aaa",)),
        ("^[0-9]{2}$", None),
        ("^[^a]$", None),
    ],
)
def test_patterns_of_few_words_are_these(pattern: str, words: tuple[str, ...] | None) -> None:
    found = strings.pattern_set(pattern)
    assert (found.values if isinstance(found, OneOfStrings) else None) == words


def test_no_request_pays_for_the_automaton_of_a_format() -> None:
    strings.string_dfa.cache_clear()
    regex_dfa.cache_clear()
    both = strings.intersect(strings.Format("regex"), Pattern("^/.+/$"))
    with budget():
        assert not strings.is_empty(both)
        assert not strings.is_empty(strings.intersect(strings.Format("uri-reference"), Pattern("ya?ml$")))
    assert spent() < MAX_STEPS / 10
