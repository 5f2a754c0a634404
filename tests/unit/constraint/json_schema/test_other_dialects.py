"""Schemas in the dialects of OpenAPI 3.0 and Gemini's API mean what their makers say, unless they name a draft."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.errors import InvalidSchema
from tests.unit.constraint.grammars import grammar_in_rules
from tests.unit.constraint.recognizer import Recognizer

DRAFT: Any = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
PET: Any = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"enum": ["cat"]}}, "required": ["kind"]},
        {"type": "object", "properties": {"kind": {"enum": ["dog"]}}, "required": ["kind"]},
    ],
    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat"}},
}


CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (
        {
            "type": "OBJECT",
            "properties": {"n": {"type": "INTEGER"}, "s": {"type": "STRING"}},
            "required": ["n"],
        },
        [{"n": 1}, {"n": 1, "s": "a"}],
        [{"n": "1"}, {}, [], {"n": 1, "s": 2}],
    ),
    ({"type": "ARRAY", "items": {"type": "NUMBER"}, "maxItems": 1}, [[], [1.5]], [["a"], [1, 2], None]),
    (
        {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": "1", "maxItems": "2"},
        [["a"]],
        [[], ["a"] * 3],
    ),
    (
        {
            "type": "OBJECT",
            "properties": {"a": {"type": "INTEGER"}, "b": {}, "c": {}},
            "propertyOrdering": ["c", "a", 1, "x", "c"],
        },
        [{"c": 1, "a": 2, "b": 3}, {"c": 1, "b": 3}],
        [{"a": 2, "c": 1}, {"b": 3, "a": 2}],
    ),
    (
        {**DRAFT, "properties": {"a": {}, "b": {}}, "propertyOrdering": ["b"], "type": "object"},
        [{"a": 1, "b": 1}],
        [],
    ),
    ({"type": "BOOLEAN"}, [True], ["true", None]),
    ({"type": "STRING", "nullable": True, "maxLength": 2}, ["ab", None], ["abc", 1]),
    ({"type": "string", "nullable": True}, ["a", None], [1]),
    ({"type": "string", "nullable": False}, ["a"], [None]),
    (
        {"type": "object", "properties": {"a": {"type": "integer", "nullable": True}}},
        [{"a": None}],
        [{"a": "x"}],
    ),
    ({"nullable": True, "enum": ["a"]}, ["a"], [None]),
    ({**DRAFT, "type": "string", "nullable": True}, ["a"], [None]),
    (PET, [{"kind": "cat"}, {"kind": "dog"}], [{"kind": "cow"}, {}]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), CASES)
def test_types_in_capitals_nullable_and_discriminator(
    schema: Any, valid: list[Any], invalid: list[Any]
) -> None:
    recognizer = Recognizer(grammar_in_rules(schema)[0])
    assert [value for value in valid if not recognizer.matches(json.dumps(value))] == []
    assert [value for value in invalid if recognizer.matches(json.dumps(value))] == []


@pytest.mark.parametrize(
    "schema", [{"type": "Object"}, {"type": "TYPE"}, {**DRAFT, "type": "OBJECT"}, {"type": [["A"]]}]
)
def test_other_types_are_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="is not a JSON type"):
        grammar_in_rules(schema)
