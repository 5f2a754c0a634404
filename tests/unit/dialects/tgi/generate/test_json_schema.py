"""What TGI takes for granted in a schema is said in it, and nothing that the schema forbids becomes possible."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.dialects.tgi.generate.json_schema import read_schema

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
