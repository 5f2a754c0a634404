"""Schemas that are refused: the error names the place, the keyword and the reason, and costs little."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jan_serve.constraint.limits import MAX_IN_PLACE_DEPTH
from jan_serve.errors import GrammarTooComplex, InvalidSchema, UnsupportedSchema
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone


def nested(levels: int) -> dict[str, Any]:
    """A schema in a schema in a schema ..."""
    return {"items": nested(levels - 1)} if levels else {}


UNSUPPORTED: tuple[tuple[Any, str, str], ...] = table(__file__, "unsupported")
INVALID: tuple[tuple[Any, str], ...] = (
    ({"type": "strin"}, "/type"),
    ({"properties": {"a": {"minimum": "1"}}}, "/properties/a/minimum"),
    ({"properties": []}, "/properties"),
    ({"required": "a"}, "/required"),
    ({"minLength": -1}, "/minLength"),
    ({"multipleOf": 0}, "/multipleOf"),
    ({"anyOf": {}}, "/anyOf"),
    ({"items": 3}, "/items"),
    ({"$ref": "#/nowhere"}, "/$ref"),
    ([], ""),
    (nested(300), ""),
    ({"type": ["null", 3]}, "/type"),
    ({"minimum": "1"}, "/minimum"),
    ({"maximum": True}, "/maximum"),
    ({"exclusiveMinimum": None, "exclusiveMaximum": "2"}, "/exclusiveMaximum"),
    ({"minimum": float("nan")}, "/minimum"),
    ({"minimum": float("inf")}, "/minimum"),
    ({"multipleOf": -1.5}, "/multipleOf"),
    ({"pattern": 3}, "/pattern"),
    ({"maxLength": 1.5}, "/maxLength"),
    ({"minItems": True}, "/minItems"),
    ({"prefixItems": {}}, "/prefixItems"),
    ({"contains": True, "minContains": "1"}, "/minContains"),
    ({"patternProperties": []}, "/patternProperties"),
    ({"required": ["a", 1]}, "/required"),
    ({"required": True}, "/required"),
    ({"maxProperties": None}, "/maxProperties"),
    ({"enum": 3}, "/enum"),
    ({"oneOf": [1]}, "/oneOf/0"),
    ({"dependentRequired": []}, "/dependentRequired"),
    ({"dependentRequired": {"a": [1]}}, "/dependentRequired"),
    ({"if": 1, "then": True}, "/if"),
)


def in_place(levels: int) -> Any:
    """Schemas that all apply to one value."""
    return {"allOf": [in_place(levels - 1)], "minimum": 1} if levels else {"type": "null"}


COMPLEX: tuple[Any, ...] = (
    in_place(MAX_IN_PLACE_DEPTH),
    {"type": "object", "properties": {f"p{n}": True for n in range(200)}, "maxProperties": 50},
    {"type": "object", "patternProperties": {f"{c}": {"minimum": n} for n, c in enumerate("abcdefg")}},
    {"type": "array", "minItems": 10, "maxItems": 10**6, "contains": {"const": 1}, "maxContains": 500},
    {"type": "string", "pattern": "(a|b)*a(a|b){14}", "minLength": 100},
    {"type": "string", "allOf": [{"pattern": f"{c}.*" * 2} for c in "abcdefghijklmnop"]},
    {"allOf": [{"anyOf": [{"required": [f"{i}{c}"]} for c in "abcd"]} for i in range(8)]},
    {"multipleOf": 987654321.123, "type": "number"},
    {"type": "integer", "minimum": 10**500},
    {"pattern": f"^{'a?' * 3900}$"},
    {"pattern": "(a|b)" * 2000},
    {"pattern": "a*" * 6000},
    {"pattern": f"({'|'.join(f'{chr(n)}[^{chr(n)}]' for n in range(0x4E00, 0x5800))})*"},
    {"oneOf": [{"type": "string", "pattern": f"[a-z]{{{n}}}"} for n in range(1, 301)]},
    {"oneOf": [{"enum": [f"v{n}" for n in range(first, first + 100)]} for first in range(200)]},
    {"not": {"enum": list(range(3000))}},
)


@pytest.mark.parametrize(("schema", "pointer", "keyword"), UNSUPPORTED)
def test_unsupported_schema_names_its_place(schema: Any, pointer: str, keyword: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        grammar_alone(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, keyword)
    assert caught.value.reason


@pytest.mark.parametrize(("schema", "pointer"), INVALID)
def test_invalid_schema_names_its_place(schema: Any, pointer: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        grammar_alone(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("schema", COMPLEX)
def test_expensive_schema_is_refused_in_bounded_time(schema: Any) -> None:
    started = time.process_time()
    with pytest.raises(GrammarTooComplex):
        grammar_alone(schema)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "integer",
            "not": {"$ref": "#/definitions/i", "minimum": 5},
            "definitions": {"i": {"type": "integer"}},
        },
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "not": {"const": 1}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "not": {"dependencies": {"a": ["b"]}}},
    ],
)
def test_negated_keywords_of_other_drafts_leave_nothing(schema: Any) -> None:
    with pytest.raises(UnsupportedSchema, match="no JSON value"):
        grammar_alone(schema)


EMPTY: dict[str, tuple[dict[str, Any], bool]] = table(__file__, "empty")


@pytest.mark.parametrize("name", EMPTY)
def test_a_schema_that_no_value_satisfies_is_refused(name: str) -> None:
    schema, is_empty = EMPTY[name]
    try:
        grammar_alone(schema)
    except UnsupportedSchema as error:
        assert is_empty and "no JSON value" in error.reason
    else:
        assert not is_empty


def test_a_chain_within_the_limit_is_taken() -> None:
    assert grammar_alone(in_place(MAX_IN_PLACE_DEPTH - 1))
