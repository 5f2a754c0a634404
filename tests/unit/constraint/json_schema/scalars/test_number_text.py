"""The texts of a number set: every plain decimal by value, and nothing outside the set in any spelling."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.scalars.number_text import number_dfa
from jan_serve.constraint.json_schema.scalars.numbers import NumberSpec
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
