"""Fitting a temperature: the one that made the answers is found, and what has none is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.errors import InvalidRequest
from jan_serve.generation.decisions import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    check_enough,
    fitted,
)

Examples = list[tuple[tuple[float, ...], int]]


def loss(examples: Examples, temperature: float) -> float:
    total = 0.0
    for masses, answer in examples:
        parts = [math.exp(mass / temperature) for mass in masses]
        total -= math.log(parts[answer] / math.fsum(parts))
    return total / len(examples)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5, 6.0])
def test_the_temperature_of_the_answers_is_found(temperature: float) -> None:
    """The answers are as frequent as a model of this temperature is sure of them."""
    masses = (-0.2, -1.7, -4.0)
    parts = [math.exp(mass / temperature) for mass in masses]
    counts = [round(100_000 * part / sum(parts)) for part in parts]
    examples: Examples = [
        (masses, answer) for answer, count in enumerate(counts) for _ in range(count // 100)
    ]
    found = fitted(examples)
    assert found.temperature == pytest.approx(temperature, rel=0.05)
    assert not found.at_bound and found.examples == len(examples)
    assert found.accuracy == pytest.approx(counts[0] / sum(counts), abs=0.01)


@settings(max_examples=60)
@given(
    examples=st.lists(
        st.lists(st.floats(-30, 0), min_size=2, max_size=5).flatmap(
            lambda masses: st.tuples(st.just(tuple(masses)), st.integers(0, len(masses) - 1))
        ),
        min_size=1,
        max_size=12,
    )
)
def test_no_other_temperature_is_better(examples: Examples) -> None:
    found = fitted(examples)
    assert MIN_TEMPERATURE <= found.temperature <= MAX_TEMPERATURE * (1 + 1e-9)
    assert found.loss_before == pytest.approx(loss(examples, 1.0), abs=1e-9)
    assert found.loss_after == pytest.approx(loss(examples, found.temperature), abs=1e-9)
    for other in (MIN_TEMPERATURE, 0.3, 0.8, 1.0, 1.5, 4.0, MAX_TEMPERATURE):
        assert found.loss_after <= loss(examples, other) + 1e-6


@pytest.mark.parametrize(
    ("examples", "temperature"),
    [
        ([((-0.1, -3.0), 0)] * 10, MIN_TEMPERATURE),
        ([((-0.1, -3.0), 1)] * 10, MAX_TEMPERATURE),
    ],
)
def test_answers_that_are_all_right_or_all_wrong_have_no_best_one(
    examples: Examples, temperature: float
) -> None:
    found = fitted(examples)
    assert found.temperature == pytest.approx(temperature)
    assert found.at_bound


def test_equal_options_leave_it_as_it_is() -> None:
    found = fitted([((-1.0, -1.0), 0)] * 10)
    assert (found.temperature, found.at_bound) == (1.0, False)


def test_an_option_without_probability_counts_nothing() -> None:
    one, other = ([((-0.5, -1.0, *more), number % 2) for number in range(10)] for more in ((), (-math.inf,)))
    assert fitted(one) == fitted(other)


def test_what_has_no_temperature_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="9 are too few"):
        check_enough(9)
    with pytest.raises(InvalidRequest, match="never gives the answer of item 1"):
        fitted([((-0.5, -1.0), 0), ((-0.5, -math.inf), 1)])
