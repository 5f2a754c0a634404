"""Texts of whole numbers between two bounds, against a comparison of the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.digit_ranges import whole_numbers

SMALL = st.integers(0, 1200)
LONG = st.integers(0, 10**400)


@settings(deadline=None)
@given(SMALL, SMALL)
def test_exactly_the_numbers_within_the_bounds(low: int, high: int) -> None:
    dfa = whole_numbers(low, high)
    for number in range(1500):
        assert dfa.matches(str(number)) == (low <= number <= high), number
    assert not dfa.matches("9" * 50)


@settings(max_examples=30, deadline=None)
@given(LONG, LONG, st.lists(LONG, max_size=5))
def test_bounds_of_hundreds_of_digits(low: int, high: int, numbers: list[int]) -> None:
    dfa = whole_numbers(low, high)
    near = [bound + step for bound in (low, high) for step in (-1, 0, 1) if bound + step >= 0]
    for number in (*numbers, *near):
        assert dfa.matches(str(number)) == (low <= number <= high), number


@pytest.mark.parametrize("text", ["", "00", "01", "012", "-1", "1.0", "+1", "1e1", "\u0661"])
@pytest.mark.parametrize(("low", "high"), [(0, 10**400), (0, 99), (0, 0), (1, 10**400)])
def test_other_spellings_are_none(text: str, low: int, high: int) -> None:
    assert not whole_numbers(low, high).matches(text)


def test_states_grow_with_the_digits_only() -> None:
    assert len(whole_numbers(10**100 + 1, int("17976931348623157" + "0" * 292)).table) < 1500
