"""Types of parameters from a schema, and values converted by them."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.chat.schema_types import ALL_TYPES, item_schema, property_schema, types_of, value_to_json

CITY: dict[str, Any] = {"$ref": "#/$defs/a~1b"}
ROOT: dict[str, Any] = {
    "$defs": {
        "a/b": {"type": "string"},
        "loop": {"$ref": "#/$defs/loop"},
        "many": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    },
    "properties": {"city": CITY},
}


TYPES: list[tuple[Any, Any]] = [
    ({"type": "string"}, {"string"}),
    ({"type": ["string", "null"]}, {"string", "null"}),
    ({"type": "INTEGER"}, {"integer"}),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
    ({"oneOf": [CITY, {"const": 1.5}]}, {"string", "number"}),
    ({"enum": ["a", 1, None, True]}, {"string", "integer", "null", "boolean"}),
    ({"properties": {}}, {"object"}),
    ({"items": {}}, {"array"}),
    (CITY, {"string"}),
    ({}, ALL_TYPES),
    (True, ALL_TYPES),
    (None, ALL_TYPES),
    ({"type": "text"}, ALL_TYPES),
    ({"$ref": "#/$defs/loop"}, ALL_TYPES),
    ({"$ref": "#/nowhere/at/all"}, ALL_TYPES),
    ({"$ref": "https://example.org/schema"}, ALL_TYPES),
    ({"$ref": "#/$defs/many"}, ALL_TYPES),
    ({"anyOf": [{"properties": {}}, {"type": "null"}]}, {"object", "null"}),
    ({"type": ["string", "integer"], "enum": ["1", "x"]}, {"string"}),
    ({"type": ["string", "number"], "allOf": [{"type": ["integer", "null"]}]}, {"integer"}),
    ({"type": ["object", "null"], "allOf": [{"properties": {}}]}, {"object", "null"}),
    ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, ALL_TYPES),
    ({"type": "string", "anyOf": [{"minLength": 1}, {"type": "null"}]}, {"string"}),
    ({"type": "string", "allOf": [{"type": "null"}]}, ALL_TYPES),
    ({"$ref": "#city"}, ALL_TYPES),
]


@pytest.mark.parametrize(("schema", "types"), TYPES)
def test_types_of_a_schema(schema: object, types: set[str]) -> None:
    assert types_of(schema, ROOT) == types


def test_schemas_of_properties_and_items() -> None:
    schema = {"anyOf": [{"properties": {"a": CITY}}, {"additionalProperties": {"type": "null"}}]}
    assert property_schema(schema, ROOT, "a") == {"anyOf": [CITY, {"type": "null"}]}
    assert property_schema(schema, ROOT, "b") == {"anyOf": [{"type": "null"}]}
    assert property_schema({"allOf": [ROOT, ROOT, {"$ref": "#"}]}, ROOT, "city") is CITY
    both = {"properties": {"a": True}, "oneOf": [{"properties": {"a": CITY}}, {"$ref": "#/$defs/loop"}]}
    assert property_schema(both, ROOT, "a") == {"allOf": [True, {"anyOf": [CITY]}]}
    assert property_schema({}, ROOT, "b") is None
    assert item_schema({"items": CITY}, ROOT) is CITY
    assert item_schema({"items": True}, ROOT) is None
    either = {"anyOf": [{"items": {"type": "integer"}}, {"items": CITY}]}
    assert item_schema(either, ROOT) == {"anyOf": [{"type": "integer"}, CITY]}


def test_schemas_that_are_deep_or_shared_take_no_time() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        deep = {"allOf": [deep, deep], "anyOf": [deep, deep]}
    assert types_of(deep, ROOT) == ALL_TYPES
    assert property_schema(deep, ROOT, "a") is None


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("2", {"string"}, '"2"'),
        (" 2 ", {"integer"}, "2"),
        ("2.0", {"integer"}, "2.0"),
        ("2.5", {"integer"}, '"2.5"'),
        ("2", {"number"}, "2"),
        ("True", {"boolean"}, "true"),
        ("None", {"string", "null"}, "null"),
        ("none", {"string", "null"}, '"none"'),
        ("5", {"string", "null"}, '"5"'),
        ('"a"', {"string", "null"}, '"\\"a\\""'),
        ("[1, 'a']", {"array"}, '[1, "a"]'),
        ("{'a': True}", {"object"}, '{"a": true}'),
        ("{'a': True, 'a': [1]}", {"object"}, '{"a": true}'),
        ('{"a":1,"b":2}', {"object"}, '{"a":1,"b":2}'),
        ('{"a":1,"a":2,"b":[{"c":1E5,"c":0}]}', {"object"}, '{"a": 1, "b": [{"c": 1E5}]}'),
        (r'{"\/":"\/é\u00e9\ud83d","/":1,"\ud83d\ude00":2,"😀":3}', {"object"},
         r'{"/": "/éé\ud83d", "\ud83d\ude00": 2}'),
        ("{:.2f}", ALL_TYPES, '"{:.2f}"'),
        ("{a", {"object"}, '"{a"'),
        ("NaN", {"number"}, '"NaN"'),
        ("1" * 5000, {"integer"}, '"' + "1" * 5000 + '"'),
        ("[" * 100_000, {"array"}, '"' + "[" * 100_000 + '"'),
        (" Oslo\n", ALL_TYPES, '" Oslo\\n"'),
        ("[1]", ALL_TYPES, "[1]"),
        ("", ALL_TYPES, '""'),
    ],
)  # fmt: skip
def test_values_are_converted_by_type(text: str, types: set[str], expected: str) -> None:
    assert value_to_json(text, frozenset(types)) == expected
