"""Sets of strings against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.strings import (
    ANY_STRING,
    NO_STRING,
    AllOf,
    Length,
    NotIn,
    OneOfStrings,
    Pattern,
    StringSet,
)
from jan_serve.errors import UnsupportedPattern
from tests.unit.constraint.json_schema.type_sets import in_set
from tests.unit.constraint.matching import texts

TEXTS = texts("ab", 4)
LEAVES: st.SearchStrategy[StringSet] = st.one_of(
    st.just(ANY_STRING),
    st.lists(st.text("ab", max_size=3), max_size=3, unique=True).map(lambda v: OneOfStrings(tuple(v))),
    st.builds(Length, st.integers(0, 3), st.none() | st.integers(3, 5)),
    st.sampled_from(["^a", "b$", "^(ab)*$", "aa|b", "^a*$"]).map(Pattern),
)
SETS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(strings.intersect, inner, inner),
        st.builds(strings.unite, inner, inner),
        st.builds(strings.complement, inner),
    ),
    max_leaves=4,
)


def members(s: StringSet) -> set[str]:
    return {text for text in TEXTS if in_set(s, text)}


@given(SETS, SETS)
def test_set_operations(a: StringSet, b: StringSet) -> None:
    assert members(strings.intersect(a, b)) == members(a) & members(b)
    assert members(strings.unite(a, b)) == members(a) | members(b)
    assert members(strings.complement(a)) == set(TEXTS) - members(a)
    assert members(strings.intersect_all([a, b, a])) == members(a) & members(b)


@given(SETS)
def test_membership_is_read_from_the_set_and_from_its_automaton(s: StringSet) -> None:
    dfa = strings.string_dfa(s)
    for text in TEXTS:
        assert strings.contains(s, text) is in_set(s, text), text
        assert dfa.matches(text) is in_set(s, text), text


@given(SETS)
def test_an_empty_set_has_no_string(s: StringSet) -> None:
    if strings.is_empty(s):
        assert not members(s)
    else:
        assert strings.string_dfa(s).accepting


SIMPLIFIED: dict[str, tuple[StringSet, StringSet]] = {
    "lengths are joined": (strings.intersect(Length(1, None), Length(0, 4)), Length(1, 4)),
    "lengths without overlap": (strings.intersect(Length(3, None), Length(0, 2)), NO_STRING),
    "a set and its complement": (strings.intersect(Pattern("a"), NotIn(Pattern("a"))), NO_STRING),
    "a finite set is filtered": (
        strings.intersect(OneOfStrings(("b", "a", "ab")), Length(1, 1)),
        OneOfStrings(("b", "a")),
    ),
    "one condition stands once": (
        strings.intersect(AllOf((Pattern("a"), Length(1, None))), Pattern("a")),
        AllOf((Pattern("a"), Length(1, None))),
    ),
    "finite sets in their order": (
        strings.unite(OneOfStrings(("b",)), OneOfStrings(("a", "b"))),
        OneOfStrings(("b", "a")),
    ),
    "the complement of a length": (strings.complement(Length(0, 3)), Length(4, None)),
    "twice the complement": (strings.complement(strings.complement(Pattern("a"))), Pattern("a")),
}


@pytest.mark.parametrize("name", SIMPLIFIED)
def test_simplified(name: str) -> None:
    made, expected = SIMPLIFIED[name]
    assert made == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^(red|green)$", OneOfStrings(("red", "green"))),
        ("^a(b|c)(d|e)$", OneOfStrings(("abd", "abe", "acd", "ace"))),
        ("^$", OneOfStrings(("",))),
        (".*", ANY_STRING),
        ("", ANY_STRING),
        ("^a", Pattern("^a")),
        ("^[ab]$", Pattern("^[ab]$")),
        ("^(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)$", None),
    ],
)
def test_a_pattern_that_spells_its_words_is_a_finite_set(pattern: str, expected: StringSet | None) -> None:
    assert strings.pattern_set(pattern) == (Pattern(pattern) if expected is None else expected)


def test_a_pattern_is_refused_where_it_is_read() -> None:
    with pytest.raises(UnsupportedPattern):
        strings.pattern_set("(a)\\1")
