"""What a schema costs, and the change of one keyword that makes a refused one compile."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint.enforce import Cost, enforce
from jan_serve.constraint.explain import explain, smallest_change
from jan_serve.constraint.limits import MAX_STEPS
from jan_serve.constraint.loosen import Change
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.errors import InvalidRequest

TEXT: dict[str, Any] = {"type": "string"}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
OBJECTS: dict[str, Any] = {"type": "array", "items": CLOSED, "uniqueItems": True}


def cost_of(schema: Any) -> Cost:
    return enforce(JsonSchemaConstraint(schema)).cost


def explained(schema: Any) -> tuple[bool, tuple[str, ...]]:
    found = explain(JsonSchemaConstraint(schema))
    return found.compiles, found.lines


def test_a_schema_that_compiles_says_what_it_costs() -> None:
    schema = {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["b"]}
    compiles, lines = explained(schema)
    assert compiles and lines[0] == "compiles"
    assert lines[-1] == "keys are written in the order in which `properties` lists them: the top-level object"


def test_the_costs_grow_with_the_schema() -> None:
    small = cost_of(TEXT)
    large = cost_of({"type": "object", "properties": {f"p{n}": {"enum": [n, "x"]} for n in range(50)}})
    assert small.steps < large.steps < MAX_STEPS
    assert small.rules < large.rules and small.lark_bytes < large.lark_bytes
    assert small.unique_arrays == 0
    assert cost_of({"type": "array", "items": TEXT, "uniqueItems": True}).unique_arrays == 1


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
        ({"type": "number", "multipleOf": 987654321.123}, Change("", "multipleOf", None)),
        ({"type": "integer", "minimum": 5, "maximum": 3}, Change("", "minimum", None)),
        ({"oneOf": [OBJECTS, TEXT]}, Change("/oneOf/0", "uniqueItems", None)),
        ({"oneOf": [{"type": "array", "uniqueItems": True}, {"minItems": 1}]}, None),
        ({"$ref": "https://example.com/other"}, Change("", "$ref", None)),
    ],
)
def test_the_smallest_change(schema: Any, change: Change | None) -> None:
    with pytest.raises(InvalidRequest) as refused:
        cost_of(schema)
    found = smallest_change(JsonSchemaConstraint(schema), refused.value)
    assert found is not None
    assert change is None or found == change
    compiles, lines = explained(schema)
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
    compiles, lines = explained(schema)
    assert compiles
    assert lines[-1].endswith(
        ": the top-level object, /properties/b/items, /properties/a, /additionalProperties"
    )


@pytest.mark.parametrize(
    "properties",
    [{"a": OBJECTS, "b": OBJECTS}, {"a/properties/b": OBJECTS, "a": {"properties": {"b": OBJECTS}}}],
)
def test_no_single_change_is_said_too(properties: dict[str, Any]) -> None:
    compiles, lines = explained({"type": "object", "properties": properties})
    assert not compiles and lines[-1] == "changing one keyword does not fix it"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a.{8}b"},
        {"type": "string", "pattern": r"^(\S+\s+){0,50}\S+$", "maxLength": 300},
        {"type": "string", "format": "uri", "pattern": "^https://", "maxLength": 2048},
        {"type": "array", "maxItems": 2**53},
    ],
)
def test_what_the_server_takes_is_not_refused(schema: dict[str, Any]) -> None:
    assert enforce(JsonSchemaConstraint(schema)).compiled().lark
    assert explained(schema)[0]
