"""The texts of a number set: every plain decimal by value, and nothing outside the set in any spelling."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.number_text import number_dfa
from jan_serve.constraint.json_schema.numbers import NumberSpec, point
from jan_serve.errors import GrammarTooComplex

BOUNDS = st.none() | st.sampled_from(
    ["-120", "-12.5", "-9", "-1", "-0.25", "0", "0.1", "0.75", "1", "9.95", "10", "99", "105.5", "1000"]
).map(Fraction)
FACTORS = st.sampled_from(["1", "2", "7", "0.5", "0.25", "1.5", "25"]).map(Fraction)
CONDITIONS = st.frozensets(FACTORS, max_size=1)
SPECS = st.builds(
    NumberSpec,
    BOUNDS,
    st.booleans(),
    BOUNDS,
    st.booleans(),
    st.sampled_from([None, True, False]),
    CONDITIONS,
    CONDITIONS,
    st.frozensets(st.sampled_from(["0", "2", "-9", "0.75"]).map(Fraction), max_size=2),
)
DIGITS = st.text("0123456789", max_size=4)


def _decimal(sign: str, whole: str, part: str) -> str:
    return sign + (whole.lstrip("0") or "0") + (f".{part}" if part else "")


DECIMALS = st.builds(_decimal, st.sampled_from(["", "-"]), DIGITS, DIGITS)
EXPONENTS = st.builds(
    "{}{}{}".format, DECIMALS, st.sampled_from(["e", "E", "e+", "e-", "e-0"]), st.integers(0, 30)
)


@settings(max_examples=300)
@given(SPECS, st.lists(DECIMALS, min_size=20, max_size=20))
def test_a_plain_decimal_is_accepted_by_its_value(spec: NumberSpec, texts: list[str]) -> None:
    dfa = number_dfa(spec)
    for text in texts:
        value = Fraction(text)
        if text.startswith("-") and value == 0:
            continue
        # Whole numbers are written without a point.
        expected = spec.contains(value) and not ("." in text and spec.is_whole())
        assert dfa.matches(text) is expected, text


@settings(max_examples=200)
@given(SPECS, st.lists(EXPONENTS, min_size=20, max_size=20))
def test_no_spelling_of_another_value_is_accepted(spec: NumberSpec, texts: list[str]) -> None:
    dfa = number_dfa(spec)
    for text in texts:
        assert not dfa.matches(text) or spec.contains(Fraction(text)), text


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6))
def test_integers_between_two_bounds(low: int, width: int) -> None:
    dfa = number_dfa(NumberSpec(low=Fraction(low), high=Fraction(low + width), integer=True))
    middle = low + width // 2
    for value in {low - 1, low, low + 1, middle, low + width, low + width + 1, -low, 0, 10 * middle}:
        assert dfa.matches(str(value)) is (low <= value <= low + width), value


@given(st.floats(-1e30, 1e30).filter(lambda value: abs(value) > 1e-30))
def test_a_constant_has_its_own_spelling(value: float) -> None:
    text = json.dumps(value)
    dfa = number_dfa(point(Fraction(text), text))
    assert dfa.matches(text)
    assert not dfa.matches(json.dumps(value + 1 if abs(value) < 1e15 else value * 2))


@pytest.mark.parametrize(
    "text",
    ["", "-", "+1", "01", "-01", "1.", ".5", "1e5.0", "1e", "--1", "1 ", "0x1", "NaN", "Infinity", "1_000"],
)
def test_what_is_not_json_is_in_no_set(text: str) -> None:
    for spec in (
        NumberSpec(low=Fraction(-5)),
        NumberSpec(integer=True),
        NumberSpec(multiples=frozenset({Fraction(1, 2)})),
    ):
        assert not number_dfa(spec).matches(text)


@pytest.mark.parametrize(
    ("spec", "accepted", "refused"),
    [
        (NumberSpec(low=Fraction(0)), ["1e3", "2.5E-7", "1e+07", "1e307"], ["1e308", "-1e-5"]),
        (NumberSpec(low=Fraction(500)), ["1e3", "5e2", "500"][:1], ["1e2", "9e1"]),
        (NumberSpec(low=Fraction(0), high=Fraction(1)), ["5e-1", "1e-300"], ["5e0", "2e1"]),
        (NumberSpec(low=Fraction(1), high=Fraction(2)), ["1.5"], ["15e-1", "1e0"]),
    ],
)
def test_exponents_where_the_order_of_magnitude_decides(
    spec: NumberSpec, accepted: list[str], refused: list[str]
) -> None:
    dfa = number_dfa(spec)
    assert [text for text in (*accepted, *refused) if dfa.matches(text)] == accepted


@pytest.mark.parametrize(
    "spec",
    [
        NumberSpec(low=Fraction(2), high=Fraction(1)),
        NumberSpec(low=Fraction(1), high=Fraction(1), low_open=True),
        NumberSpec(low=Fraction("0.2"), high=Fraction("0.8"), integer=True),
    ],
)
def test_a_set_without_values_has_no_text(spec: NumberSpec) -> None:
    assert number_dfa(spec).is_empty()


def test_a_hundred_digits_of_a_bound_are_compared() -> None:
    low = int("1234567890" * 10)
    dfa = number_dfa(NumberSpec(low=Fraction(low), integer=True))
    assert [dfa.matches(str(number)) for number in (low - 1, low, low + 1, low * 10)] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (NumberSpec(low=Fraction(10**500), integer=True), "digits"),
        (NumberSpec(low=Fraction(10**500), multiples=frozenset({Fraction("0.5")})), "digits"),
        (NumberSpec(multiples=frozenset({Fraction("1e-31")})), "digits after the point"),
        (NumberSpec(multiples=frozenset({Fraction(10**9 + 7)})), "too many digits"),
    ],
)
def test_what_takes_too_many_states_is_refused(spec: NumberSpec, reason: str) -> None:
    with pytest.raises(GrammarTooComplex, match=reason):
        number_dfa(spec)
