"""Bounds as large, as small and as long as a double has them: judged as `jsonschema` judges them, in any spelling."""

from __future__ import annotations

import itertools
import json
import operator
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.errors import InvalidSchema, UnsupportedSchema
from tests.support.drawn_grid import drawn_grid, some
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import matches

ENDS = (
    *(
        "1.7976931348623157e308",
        "1.79769e+308",
        "3.4e+38",
        "3.402823466e38",
        "1e100",
        "1e300",
        "1e78",
        "1e77",
    ),
    *("2.2e-308", "2.2250738585072014e-308", "4.9e-324", "1e-300", "1.5e-40", "1e-06", "1.25e-5"),
    *("1.2345678901234567e200", "1.2345678901234567e19", "9.87e16", "1e16", "1e15", "1.5", "0", "250.75"),
    *("12345678901234567890123456789012345678901234567890123456789012345678901234567890123456", "9e999"),
)
BOUNDS: st.SearchStrategy[float] = st.sampled_from(
    [json.loads(sign + end) for sign in ("", "-") for end in ENDS]
)
KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "minimum": BOUNDS,
        "maximum": BOUNDS,
        "exclusiveMinimum": BOUNDS,
        "exclusiveMaximum": BOUNDS,
        "type": st.sampled_from(["number", "integer"]),
    },
)
NUMBERS: st.SearchStrategy[float] = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**90), 10**90),
    BOUNDS.filter(lambda bound: abs(bound) != float("inf")),
    st.builds(
        operator.mul,
        BOUNDS.filter(lambda bound: isinstance(bound, float) and 1e-290 < abs(bound) < 1e300),
        st.sampled_from([0.5, 0.999999, 1.000001, 2.0, -1.0]),
    ),
)


def spellings(number: float) -> list[str]:
    """The texts of a number: as Python writes it, with all of its digits, and with a mantissa and an exponent."""
    exact = Fraction(json.dumps(number))
    mantissa, _, exponent = f"{number:.17e}".partition("e") if abs(number) < 1e300 else ("", "", "")
    texts = [json.dumps(number)]
    if exact.denominator == 1:
        texts.append(str(int(exact)))
    if mantissa:
        texts += [f"{mantissa}e{exponent}", f"{mantissa}E{int(exponent)}"]
    return texts


def is_valid(schema: Any, text: str) -> bool:
    """By `jsonschema`, with exact decimals."""
    exact = {
        key: Fraction(repr(value)) if isinstance(value, float) and abs(value) != float("inf") else value
        for key, value in schema.items()
    }
    number = Fraction(text)
    whole = int(number) if number.denominator == 1 else number
    validator: Any = jsonschema.Draft202012Validator(exact)
    return validator.is_valid(whole)


@settings(max_examples=400, deadline=None)
@given(KEYWORDS, st.lists(NUMBERS, min_size=12, max_size=12))
def test_bounds_are_judged_as_jsonschema_judges_them(schema: dict[str, Any], numbers: list[float]) -> None:
    try:
        grammar = grammar_alone({"type": "number", **schema})
    except UnsupportedSchema as error:
        assert "no JSON value" in error.reason
        return
    except InvalidSchema:
        assert float("inf") in (schema.get("minimum"), schema.get("exclusiveMinimum")) or -float("inf") in (
            schema.get("maximum"),
            schema.get("exclusiveMaximum"),
        )
        return
    for number in numbers:
        for text in spellings(number):
            if matches(grammar, text):
                assert is_valid(schema, text), text


@settings(max_examples=150, deadline=None)
@given(BOUNDS, BOUNDS, st.lists(NUMBERS, min_size=12, max_size=12))
def test_a_number_within_bounds_is_accepted_as_python_writes_it(
    low: float, high: float, numbers: list[float]
) -> None:
    least, most = min(low, high), max(low, high)
    schema: dict[str, Any] = {"type": "number", "minimum": least, "maximum": most}
    try:
        grammar = grammar_alone(schema)
    except InvalidSchema:
        assert least == float("inf") or most == -float("inf")
        return
    except UnsupportedSchema:  # only numbers that are written with a larger exponent than answers have
        assert 0 < max(abs(least), abs(most)) < 1e-306 or min(abs(least), abs(most)) > 1e306
        return
    for number in numbers:
        text = json.dumps(number)
        # What a number without bounds may not be either: a digit before the point at the last exponent.
        if is_valid(schema, text) and 1e-306 < abs(number) < 1e307 and len(text.split(".")[0]) < 78:
            assert matches(grammar, text), text


@drawn_grid(end=[end for end in ENDS if end != "0"], factor=[None, 5, 0.25])
def test_a_bound_of_the_size_of_a_double_compiles(end: str, factor: float | None) -> None:
    """On the side where it leaves numbers that can be written."""
    high, low = json.loads(end), json.loads(f"-{end}")
    for kind in ("number", "integer"):
        base: dict[str, Any] = {"type": kind} if factor is None else {"type": kind, "multipleOf": factor}
        for bounds in (
            {"minimum": low},
            {"maximum": high},
            {"exclusiveMinimum": low},
            {"exclusiveMaximum": high},
            {"minimum": low, "maximum": high},
        ):
            enforce(JsonSchemaConstraint({"type": "object", "properties": {"a": base | bounds}}))


LARGE = [
    float(end) if "e" in end else int(end)
    for end in ("1e77", "1e78", ENDS[-2], "1e100", "1.2345678901234567e200", "1e300", "1.79769e308")
] + [1.7976931348623157e308]


@pytest.mark.drawn
@pytest.mark.parametrize(("low", "high"), some(itertools.combinations(LARGE, 2), 7))
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_two_bounds_of_many_digits_compile(kind: str, low: float, high: float) -> None:
    """Bounds of either sign and either kind, wherever they lie."""
    for least, most in ((low, high), (-high, -low), (-high, low), (-low, low)):
        for names in (("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")):
            grammar_alone({"type": kind, **dict(zip(names, (least, most), strict=True))})


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"), table(__file__, "a_bound_is_compared_where_it_is_written")
)
def test_a_bound_is_compared_where_it_is_written(
    schema: dict[str, Any], accepted: list[str], refused: list[str]
) -> None:
    grammar = grammar_alone({"type": "number", **schema})
    assert [text for text in (*accepted, *refused) if matches(grammar, text)] == accepted


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    table(__file__, "what_a_reader_with_doubles_takes_for_an_excluded_number_is_refused"),
)
def test_what_a_reader_with_doubles_takes_for_an_excluded_number_is_refused(
    schema: dict[str, Any], accepted: list[str], refused: list[str]
) -> None:
    grammar = grammar_alone({"type": "number", **schema})
    assert [text for text in (*accepted, *refused) if matches(grammar, text)] == accepted
