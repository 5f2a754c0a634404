"""Expression trees as automata, against the same tree in Python's `re`."""

from __future__ import annotations

import pytest

from jan_serve.constraint import charset
from jan_serve.constraint.regex.nfa import compile_dfa
from jan_serve.constraint.regex.syntax import ANYTHING, Chars, Concat, Loop, Regex
from jan_serve.errors import GrammarTooComplex

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
