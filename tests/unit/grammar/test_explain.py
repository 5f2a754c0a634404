"""What a schema costs, and the change of one keyword that makes a refused one compile."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.grammar.explain import Change, cost_of_schema, explain, smallest_change
from jan_serve.grammar.limits import MAX_STEPS

TEXT: dict[str, Any] = {"type": "string"}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
OBJECTS: dict[str, Any] = {"type": "array", "items": CLOSED, "uniqueItems": True}


def test_a_schema_that_compiles_says_what_it_costs() -> None:
    schema = {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["b"]}
    compiles, lines = explain(schema)
    assert compiles and lines[0] == "compiles"
    assert lines[-1] == "properties come in the order of `properties`: /"


def test_the_costs_grow_with_the_schema() -> None:
    small = cost_of_schema(TEXT)
    large = cost_of_schema({"type": "object", "properties": {f"p{n}": {"enum": [n, "x"]} for n in range(50)}})
    assert small.steps < large.steps < MAX_STEPS
    assert small.rules < large.rules and small.lark_bytes < large.lark_bytes
    assert small.remembered == 0
    assert cost_of_schema({"type": "array", "items": TEXT, "uniqueItems": True}).remembered == 1


@pytest.mark.parametrize(
    ("schema", "change"),
    [
        (OBJECTS, Change("", "uniqueItems", None)),
        (
            {"type": "object", "properties": {"a/b": TEXT, "x": OBJECTS}},
            Change("/properties/x", "uniqueItems", None),
        ),
        ({"properties": {"a~/b": OBJECTS}}, Change("/properties/a~0~1b", "uniqueItems", None)),
        ({"type": "string", "pattern": r"(a)\1"}, Change("", "pattern", None)),
        (
            {"type": "string", "format": "uri", "minLength": 9, "maxLength": 300},
            Change("", "maxLength", None),
        ),
        ({"oneOf": [OBJECTS, TEXT]}, Change("/oneOf/0", "uniqueItems", None)),
        ({"oneOf": [{"type": "array", "uniqueItems": True}, {"minItems": 1}]}, None),
        ({"$ref": "https://example.com/other"}, Change("", "$ref", None)),
    ],
)
def test_the_smallest_change(schema: Any, change: Change | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        cost_of_schema(schema)
    found = smallest_change(schema, refused.value)
    assert found is not None
    assert change is None or found == change
    compiles, lines = explain(schema)
    assert not compiles and lines[0].startswith("refused: ") and lines[-1] == f"it compiles {found.line()}"


def test_the_places_whose_order_is_fixed_come_as_in_the_document() -> None:
    pair: dict[str, Any] = {"properties": {"x": {}, "y": {}}, "additionalProperties": False}
    others: dict[str, Any] = {"properties": {"x": {}, "y": {}}, "required": ["y"]}
    free: dict[str, Any] = {"properties": {"x": {}, "y": {}}, "additionalProperties": {"type": "integer"}}
    schema: dict[str, Any] = {
        "properties": {"b": {"items": pair}, "a": pair, "c": free},
        "required": ["a"],
        "additionalProperties": others,
    }
    compiles, lines = explain(schema)
    assert compiles
    assert lines[-1].endswith("`properties`: /, /properties/b/items, /properties/a, /additionalProperties")


@pytest.mark.parametrize(
    "properties",
    [{"a": OBJECTS, "b": OBJECTS}, {"a/properties/b": OBJECTS, "a": {"properties": {"b": OBJECTS}}}],
)
def test_no_single_change_is_said_too(properties: dict[str, Any]) -> None:
    compiles, lines = explain({"type": "object", "properties": properties})
    assert not compiles and lines[-1] == "no change of a single keyword was found"
