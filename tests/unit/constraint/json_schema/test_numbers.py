"""Sets of numbers: intersection, emptiness and single values, by the values that they hold."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.json_schema import numbers
from jan_serve.constraint.json_schema.numbers import NumberSpec

VALUES = [Fraction(n, 4) for n in range(-16, 17)]
BOUNDS = st.none() | st.sampled_from(VALUES)
FACTORS = st.frozensets(
    st.sampled_from([Fraction(1), Fraction(2), Fraction(1, 2), Fraction(3, 4)]), max_size=1
)
SPECS = st.builds(
    NumberSpec,
    BOUNDS,
    st.booleans(),
    BOUNDS,
    st.booleans(),
    st.sampled_from([None, True, False]),
    FACTORS,
    FACTORS,
    st.frozensets(st.sampled_from(VALUES), max_size=2),
)


def members(spec: NumberSpec | None) -> set[Fraction]:
    return set() if spec is None else {value for value in VALUES if spec.contains(value)}


@given(SPECS, SPECS)
def test_the_intersection_has_the_values_of_both(a: NumberSpec, b: NumberSpec) -> None:
    assert members(numbers.intersect(a, b)) == members(a) & members(b)


@given(SPECS)
def test_an_empty_set_has_no_value(spec: NumberSpec) -> None:
    if numbers.is_empty(spec):
        assert not members(spec)


@given(SPECS, SPECS, st.sampled_from(VALUES))
def test_one_value_is_taken_out(a: NumberSpec, b: NumberSpec, value: Fraction) -> None:
    left = numbers.without((a, b), value)
    assert set[Fraction]().union(*map(members, left)) == (members(a) | members(b)) - {value}


@given(SPECS)
def test_whole_bounds_hold_every_integer(spec: NumberSpec) -> None:
    first, last = numbers.whole_bounds(spec)
    whole = [value for value in members(spec) if value.denominator == 1]
    assert all((first is None or value >= first) and (last is None or value <= last) for value in whole)
    if spec.is_whole():
        assert members(spec) == set(whole)


@pytest.mark.parametrize(
    ("low", "high", "bounds"), [("0.5", "2.5", (1, 2)), ("-0.5", "0", (0, 0)), ("1", "1", (1, 1))]
)
def test_whole_bounds(low: str, high: str, bounds: tuple[int, int]) -> None:
    assert numbers.whole_bounds(NumberSpec(low=Fraction(low), high=Fraction(high))) == bounds
    open_ended = NumberSpec(low=Fraction(low), low_open=True, high=Fraction(high), high_open=True)
    first, last = numbers.whole_bounds(open_ended)
    assert first is not None
    assert last is not None
    assert first > Fraction(low)
    assert last < Fraction(high)
