"""Expression trees as automata, against the same tree in Python's `re`."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint import charset
from jan_serve.constraint.regex.ast import (
    ANYTHING,
    EPSILON,
    Alternation,
    Assertion,
    Automaton,
    Chars,
    Concat,
    Loop,
    Regex,
)
from jan_serve.constraint.regex.nfa import compile_dfa
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.matching import texts

TEXTS = texts("ab.", 5)
LEAVES: st.SearchStrategy[Regex] = st.one_of(
    st.sampled_from(["a", "b", "ab", "a."]).map(lambda chars: Chars(charset.of_chars(chars))),
    st.sampled_from("^$bB").map(Assertion),
    st.sampled_from([EPSILON, ANYTHING]),
)


def _loop(item: Regex, low: int, more: int | None) -> Loop:
    return Loop(item, low, None if more is None else low + more)


def _larger(inner: st.SearchStrategy[Regex]) -> st.SearchStrategy[Regex]:
    items = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Concat, items),
        st.builds(Alternation, items),
        st.builds(_loop, inner, st.integers(0, 2), st.none() | st.integers(0, 2)),
    )


TREES = st.recursive(LEAVES, _larger, max_leaves=6)


def python(regex: Regex) -> str:
    """The tree as `re` spells it; its `.` is any character of these tests."""
    if isinstance(regex, Chars):
        if regex.chars == charset.ANY:
            return "[ab.]"
        return "[" + "".join(c for c in "ab." if charset.contains(regex.chars, ord(c))) + "]"
    if isinstance(regex, Concat):
        return "(?:" + "".join(map(python, regex.items)) + ")"
    if isinstance(regex, Alternation):
        return "(?:" + "|".join(map(python, regex.items)) + ")"
    if isinstance(regex, Loop):
        return f"(?:{python(regex.item)}){{{regex.low},{'' if regex.high is None else regex.high}}}"
    assert isinstance(regex, Assertion)
    return {"^": r"\A", "$": r"\Z", "b": r"\b", "B": r"\B"}[regex.kind]


@given(TREES)
def test_a_tree_matches_as_in_python(regex: Regex) -> None:
    dfa, expected = compile_dfa(regex), re.compile(python(regex), re.ASCII)
    for text in TEXTS:
        # Python before 3.14 says that \B never holds in the empty text.
        if text or "\\B" not in expected.pattern:
            assert dfa.matches(text) is bool(expected.fullmatch(text)), (expected.pattern, text)


@given(TREES, TREES, TREES)
def test_an_embedded_automaton_stands_for_its_words(before: Regex, inside: Regex, after: Regex) -> None:
    """`inside` has no conditions on its neighbours once it is an automaton, so neither may the tree that has it."""
    if any(isinstance(part, Assertion) for tree in (before, inside, after) for part in _all(tree)):
        return
    embedded = compile_dfa(Concat((before, Automaton(compile_dfa(inside)), after)))
    written = compile_dfa(Concat((before, inside, after)))
    assert (embedded.table, embedded.accepting) == (written.table, written.accepting)


def _all(regex: Regex) -> list[Regex]:
    items = (
        regex.items
        if isinstance(regex, Concat | Alternation)
        else (regex.item,)
        if isinstance(regex, Loop)
        else ()
    )
    return [regex, *(part for item in items for part in _all(item))]


A = Chars(charset.of_chars("a"))


@pytest.mark.parametrize(
    "regex",
    [
        Loop(A, 30_000, None),
        Loop(Loop(A, 0, 200), 0, 200),
        Concat((ANYTHING, A, Loop(Chars(charset.ANY), 14, 14))),
    ],
)
def test_the_number_of_states_is_limited(regex: Regex) -> None:
    with pytest.raises(GrammarTooComplex, match="a regular expression"):
        compile_dfa(regex)


def test_a_search_stops_at_the_first_find() -> None:
    """Once the word is found anything may follow, so nothing more is remembered."""
    word = Concat(tuple(Chars(charset.of_chars(c)) for c in "abab"))
    assert len(compile_dfa(Concat((ANYTHING, word, ANYTHING))).table) == 5
