"""Digits, which a weak model would repeat without end. Values that a schema asks for stay."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.json_schema.scalars.number_text import MAX_FRACTION, MAX_WHOLE
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.core.constraint import JsonSchemaConstraint
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import Recognizer

NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
# Schema, beginning, what is repeated, how often at most.
RUNS: dict[str, tuple[dict[str, Any], str, str, int]] = {
    "zeros of a fraction": (NUMBER, "2.", "0", MAX_FRACTION),
    "digits of a fraction": (NUMBER, "-0.1", "3", MAX_FRACTION - 1),
    "digits of a number": (NUMBER, "", "7", MAX_WHOLE),
    "digits of an integer": (INTEGER, "-", "9", MAX_WHOLE),
    "digits above a bound": ({**INTEGER, "minimum": 10}, "1", "0", MAX_WHOLE),
    "digits below a bound": ({**INTEGER, "maximum": -10}, "-1", "0", MAX_WHOLE),
    "zeros within bounds": ({**NUMBER, "minimum": 1, "maximum": 3}, "2.", "0", MAX_FRACTION),
    "zeros at a bound": ({**NUMBER, "minimum": 1, "maximum": 3}, "3.", "0", MAX_FRACTION),
    "zeros above a bound": ({**NUMBER, "minimum": 0}, "5.", "0", MAX_FRACTION),
    "digits of a mantissa": ({**NUMBER, "minimum": 0}, "5.", "1", MAX_FRACTION),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_have_an_end(name: str) -> None:
    schema, opening, unit, most = RUNS[name]
    grammar = grammar_alone(schema)
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for count in (1, most, most + 1, 3 * most):
        text = opening + unit * count
        assert recognizer.matches(text) is (count <= most), text
        assert oracle.accepts(matcher, text) is (count <= most), text


@pytest.mark.parametrize(
    ("schema", "rest"),
    [
        ({**NUMBER, "minimum": 0}, ""),
        ({**NUMBER, "minimum": 0}, ".5"),
        ({**NUMBER, "exclusiveMaximum": -0.5}, ".5"),
        ({**NUMBER, "not": {"const": 5}}, ".5"),
        ({**INTEGER, "not": {"enum": [5, 55]}}, ""),
    ],
)
def test_digits_before_the_point_have_an_end_where_the_server_runs_it(
    schema: dict[str, Any], rest: str
) -> None:
    """As automata they would need a state for each digit."""
    oracle = LlguidanceOracle()
    matcher = oracle.compile(enforce(JsonSchemaConstraint(schema)).compiled.lark)
    sign = "-" if "exclusiveMaximum" in schema else ""
    for count in (1, 20, MAX_WHOLE, MAX_WHOLE + 1, 400):
        text = sign + "1" * count + rest
        assert oracle.accepts(matcher, text) is (count <= MAX_WHOLE), text


@pytest.mark.parametrize("divisor", [10, 20, 3000, 10_000, 1_000_000, 86_400])
def test_multiples_of_round_numbers(divisor: int) -> None:
    random = Random(divisor)
    schemas: list[dict[str, Any]] = [
        {**INTEGER, "multipleOf": divisor},
        {**INTEGER, "multipleOf": divisor, "minimum": 5, "maximum": 10**8},
        {**INTEGER, "not": {"multipleOf": divisor}},
    ]
    for schema in schemas:
        recognizer = Recognizer(grammar_alone(schema))
        low, high = schema.get("minimum", -(10**12)), schema.get("maximum", 10**12)
        for _ in range(200):
            value = random.choice(
                [
                    random.randrange(10**9),
                    divisor * random.randrange(-50, 5000),
                    divisor + random.randrange(-2, 3),
                    0,
                ]
            )
            divides = Fraction(value, divisor).denominator == 1
            assert recognizer.matches(str(value)) is (
                divides != ("not" in schema) and low <= value <= high
            ), value
