"""Sets of strings against their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.strings import (
    ANY_STRING,
    Length,
    OneOfStrings,
    Pattern,
    StringSet,
)
from jan_serve.errors import UnsupportedPattern
from tests.unit.constraint.json_schema.string_sets import in_set
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


def test_a_pattern_is_refused_where_it_is_read() -> None:
    with pytest.raises(UnsupportedPattern):
        strings.pattern_set("(a)\\1")
