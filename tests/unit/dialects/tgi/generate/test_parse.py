"""TGI's checks: each in its words, and in its order."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.dialects.tgi.errors import ValidationFailed
from jan_serve.dialects.tgi.generate.parse import (
    Parameters,
    check,
    check_before_queue,
    check_length,
    max_new_tokens,
    read_schema,
    samples,
)
from jan_serve.dialects.tgi.options import TgiOptions

MAX_INPUT = 100
IN_ORDER: list[tuple[dict[str, Any], str]] = [
    ({"best_of": 2}, "you must use sampling when `best_of` is > 1"),
    ({"temperature": 0.0}, "`temperature` must be strictly positive"),
    ({"repetition_penalty": 0.0}, "`repetition_penalty` must be strictly positive"),
    ({"frequency_penalty": 2.1}, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
    ({"top_p": 1.0}, "`top_p` must be > 0.0 and < 1.0"),
    ({"typical_p": 0.0}, "`typical_p` must be > 0.0 and < 1.0"),
    ({"top_k": 0}, "`top_k` must be strictly positive"),
    ({"max_new_tokens": 0}, "`max_new_tokens` must be strictly positive"),
    ({"stop": list("abcde")}, "`stop` supports up to 4 stop sequences. Given: 5"),
    ({"stop": [""]}, "`stop` sequences cannot be empty"),
    ({"seed": 1, "best_of": 2, "do_sample": True}, "`seed` must not be set when `best_of` > 1"),
    ({"top_n_tokens": 6}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"),
    ({"inputs": ""}, "`inputs` cannot be empty"),
    ({"truncate": 0}, "`truncate` must be strictly positive and less than 100. Given: 0"),
]


def words(fields: dict[str, Any]) -> str | None:
    given = dict(fields)
    inputs: str = given.pop("inputs", "a")
    try:
        check(inputs, Parameters(**given), TgiOptions(), MAX_INPUT)
    except ValidationFailed as error:
        return error.message
    return None


@pytest.mark.parametrize(("fields", "expected"), IN_ORDER)
def test_words(fields: dict[str, Any], expected: str) -> None:
    assert words(fields) == expected


@pytest.mark.parametrize("place", range(1, len(IN_ORDER)))
def test_the_first_that_fails_is_told(place: int) -> None:
    """All later ones are wrong too."""
    later: dict[str, Any] = {}
    for fields, _ in reversed(IN_ORDER[place:]):
        later |= fields
    if place < 9:
        # A number of answers that asks for sampling would come first.
        later.pop("best_of", None)
    fields, expected = IN_ORDER[place]
    assert words({**later, **fields}) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"frequency_penalty": -2.0},
        {"frequency_penalty": 2.0},
        {"top_n_tokens": 0},
        {"top_n_tokens": 5},
        {"truncate": MAX_INPUT},
        {"stop": list("abcd")},
        {"best_of": 0},
        {"best_of": 2, "top_k": 3},
        {"watermark": True},
    ],
)
def test_what_is_let_through(fields: dict[str, Any]) -> None:
    assert words(fields) is None


@pytest.mark.parametrize(
    ("fields", "stream", "most", "expected"),
    [
        ({"best_of": 3}, False, 2, "`best_of` must be > 0 and <= 2. Given: 3"),
        ({"best_of": 2}, False, 1, "`best_of` != 1 is not allowed for this endpoint"),
        ({"best_of": 2}, True, 2, "`best_of` != 1 is not supported when streaming tokens"),
        ({"best_of": 0}, True, 2, "`best_of` != 1 is not supported when streaming tokens"),
        (
            {"decoder_input_details": True},
            True,
            2,
            "`decoder_input_details` == true is not supported when streaming tokens",
        ),
        ({"best_of": 0}, False, 1, None),
        ({"best_of": 2}, False, 2, None),
        ({"best_of": 1}, True, 1, None),
    ],
)
def test_checks_before_the_queue(
    fields: dict[str, Any], stream: bool, most: int, expected: str | None
) -> None:
    limits = TgiOptions(tgi_max_best_of=most)
    if expected is None:
        check_before_queue(Parameters(**fields), limits, stream=stream)
        return
    with pytest.raises(ValidationFailed) as refused:
        check_before_queue(Parameters(**fields), limits, stream=stream)
    assert refused.value.message == expected


@pytest.mark.parametrize(
    ("wanted", "n_input", "expected"),
    [
        (10, 1, "`inputs` tokens + `max_new_tokens` must be <= 6. Given: 1 `inputs` tokens and 10 `max_new_tokens`"),
        (None, 7, "`inputs` tokens + `max_new_tokens` must be <= 6. Given: 7 `inputs` tokens and 0 `max_new_tokens`"),
        (1, 5, "`inputs` must have less than 4 tokens. Given: 5"),
        (None, 5, "`inputs` must have less than 4 tokens. Given: 5"),
        (2, 4, None),
        (None, 4, None),
    ],
)  # fmt: skip
def test_lengths(wanted: int | None, n_input: int, expected: str | None) -> None:
    parameters = Parameters(max_new_tokens=wanted)
    if expected is None:
        check_length(parameters, n_input, max_input=4, max_total=6)
        return
    with pytest.raises(ValidationFailed) as refused:
        check_length(parameters, n_input, max_input=4, max_total=6)
    assert refused.value.message == expected


def test_a_long_answer_counts_as_a_slice_and_ends_with_the_context() -> None:
    parameters = Parameters(max_new_tokens=5000)
    check_length(parameters, 1000, max_input=3000, max_total=2024)
    assert max_new_tokens(parameters, 1000, 2024) == 1024


@pytest.mark.parametrize(
    ("fields", "sampled"),
    [
        ({}, False),
        ({"do_sample": True}, True),
        ({"temperature": 1.0}, False),
        ({"temperature": 0.5}, True),
        ({"top_k": 5}, True),
        ({"top_p": 0.5}, True),
        ({"typical_p": 0.5}, True),
        ({"seed": 1}, False),
    ],
)
def test_switches(fields: dict[str, Any], sampled: bool) -> None:
    assert samples(Parameters(**fields)) is sampled


INT: dict[str, Any] = {"type": "integer"}
A: dict[str, Any] = {"properties": {"a": INT}}
CLOSED: dict[str, Any] = {**A, "type": "object", "additionalProperties": False}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "type and names": (A, CLOSED),
    "what is open stays open": (
        {**A, "additionalProperties": {"type": "null"}},
        {**A, "type": "object", "additionalProperties": {"type": "null"}},
    ),
    "inside": (
        {"properties": {"b": A, "c": {"type": "array", "items": A}, "d": {"anyOf": [A, INT]}}},
        {
            "properties": {"b": CLOSED, "c": {"type": "array", "items": CLOSED}, "d": {"anyOf": [CLOSED, INT]}},
            "type": "object",
            "additionalProperties": False,
        },
    ),
    "definitions": (
        {"properties": {"b": {"$ref": "#/$defs/x", "title": "B"}}, "$defs": {"x": A}},
        {
            "properties": {"b": {"$ref": "#/$defs/x", "title": "B"}},
            "$defs": {"x": CLOSED},
            "type": "object",
            "additionalProperties": False,
        },
    ),
    "a reference that is narrowed": (
        {"properties": {"b": {"$ref": "#/$defs/x", "required": ["a"]}}, "$defs": {"x": A}},
        {
            "properties": {"b": {"$ref": "#/$defs/x", "required": ["a"]}},
            "$defs": {"x": A},
            "type": "object",
        },
    ),
    "alternatives beside properties": ({**A, "anyOf": [A, INT]}, {**A, "anyOf": [A, INT], "type": "object"}),
    "parts that apply together": ({**A, "allOf": [A]}, {**A, "allOf": [A], "type": "object"}),
    "a nullable object": (
        {**A, "type": ["object", "null"]},
        {**A, "type": ["object", "null"], "additionalProperties": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_schemas(case: str) -> None:
    schema, expected = CASES[case]
    assert read_schema(schema) == expected
