"""Automata over two letters and the rest, against the words that they accept."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.limits import MAX_PRODUCT_STATES, budget
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.matching import texts

CUTS, SYMBOLS = (0, ord("a"), ord("b"), ord("c")), (0, 1, 2, 0)
STATES = 4
TEXTS = texts("abc", 5)
ROWS = st.lists(st.tuples(*(st.integers(0, STATES - 1) for _ in range(3))), min_size=STATES, max_size=STATES)


def _dfa(rows: list[tuple[int, ...]], accepting: frozenset[int]) -> Dfa:
    return Dfa(CUTS, SYMBOLS, tuple(rows), accepting)


DFAS = st.builds(_dfa, ROWS, st.frozensets(st.integers(0, STATES - 1)))


def words(a: Dfa) -> set[str]:
    return {text for text in TEXTS if a.matches(text)}


def is_complete(a: Dfa) -> bool:
    """Every state has a successor for every symbol, and the intervals cover all code points."""
    return (
        a.cuts[0] == 0
        and list(a.cuts) == sorted(set(a.cuts))
        and len(a.cuts) == len(a.symbols)
        and {*a.symbols} == {*range(max(a.symbols) + 1)}
        and all(len(row) == max(a.symbols) + 1 for row in a.table)
        and all(0 <= target < len(a.table) for row in a.table for target in row)
    )


@given(DFAS, DFAS)
def test_boolean_algebra(a: Dfa, b: Dfa) -> None:
    for made, expected in (
        (automata.complement(a), set(TEXTS) - words(a)),
        (automata.intersect(a, b), words(a) & words(b)),
        (automata.unite(a, b), words(a) | words(b)),
        (automata.minimize(a), words(a)),
    ):
        assert words(made) == expected
        assert is_complete(made)


@given(st.lists(DFAS, min_size=1, max_size=3))
def test_whether_automata_share_a_word(all_of: list[Dfa]) -> None:
    everything = automata.of_length(0, None)
    assert automata.share_word(all_of) is not reduce(automata.intersect, all_of, everything).is_empty()


@given(DFAS, st.integers(0, 4), st.none() | st.integers(0, 5))
def test_whether_there_is_a_word_of_a_length(a: Dfa, low: int, high: int | None) -> None:
    expected = not automata.with_length(a, low, high).is_empty()
    assert automata.has_word(a, low, high) is expected


def _residuals(a: Dfa) -> int:
    """The number of states that the smallest automaton has: beginnings that continue differently (Myhill, Nerode)."""
    continued = texts("abc", 4)
    return len({frozenset(end for end in continued if a.matches(begun + end)) for begun in texts("abc", 3)})


@given(DFAS)
def test_the_minimal_automaton_is_the_smallest(a: Dfa) -> None:
    small = automata.minimize(a)
    assert len(small.table) == _residuals(a)
    assert len(set(zip(*small.table, strict=True))) == max(small.symbols) + 1
    assert automata.minimize(small).table == small.table


@pytest.mark.parametrize(
    "build",
    [
        lambda: automata.of_length(0, MAX_PRODUCT_STATES),
        lambda: automata.from_words([f"{n:07}" for n in range(0, 10**7, 500)]),
        lambda: automata.intersect(_every(115), automata.complement(_every(113))),
    ],
)
def test_the_number_of_states_is_limited(build: object) -> None:
    assert callable(build)
    with pytest.raises(GrammarTooComplex):
        build()


def _every(period: int) -> Dfa:
    """Words whose length is a multiple."""
    return Dfa((0,), (0,), tuple(((n + 1) % period,) for n in range(period)), frozenset({0}))


def test_work_is_counted() -> None:
    with budget(1000), pytest.raises(GrammarTooComplex, match="more work"):
        automata.intersect(_every(53), _every(47))
