"""Schemas that are refused: the error names the place, the keyword and the reason, and costs little."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jan_serve.errors import GrammarTooComplex, InvalidSchema, UnsupportedSchema
from tests.unit.constraint.grammars import grammar_alone


def nested(levels: int) -> dict[str, Any]:
    """A schema in a schema in a schema ..."""
    return {"items": nested(levels - 1)} if levels else {}


UNSUPPORTED: tuple[tuple[Any, str, str], ...] = (
    ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "/properties/a", "$ref"),
    ({"$ref": "file:///etc/passwd"}, "", "$ref"),
    ({"$ref": "#/$defs/N", "$defs": {"N": {"$ref": "#/$defs/N"}}}, "", "$ref"),
    (
        {"properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}},
        "/properties/a/items",
        "uniqueItems",
    ),
    ({"properties": {"a/b": {"pattern": "(a)\\1"}}}, "/properties/a~1b", "pattern"),
    ({"pattern": "(?<=x)a"}, "", "pattern"),
    ({"pattern": "^+[a-z]$"}, "", "pattern"),
    ({"pattern": "[z-a]"}, "", "pattern"),
    ({"type": "string", "enum": [1]}, "", "type"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "", "allOf"),
    (False, "", "false"),
    ({"properties": {"a": {"minItems": 2**53}}}, "/properties/a", "minItems"),
    ({"not": {"dependencies": {"a": ["b"]}}}, "/not", "dependencies"),
)
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
)
COMPLEX: tuple[Any, ...] = (
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
