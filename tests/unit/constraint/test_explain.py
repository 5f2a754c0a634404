"""These tests explain what a schema costs, the change of one keyword that makes a refused one compile, and where a
text leaves it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.constraint.enforce import Cost, enforce
from jan_serve.constraint.explain import Change, explain, leaves_at, smallest_change
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.core.constraint import (
    GbnfConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    RegexConstraint,
    Whitespace,
)
from jan_serve.errors import InvalidRequest
from tests.unit.constraint.json_schema.test_translate import CASES, Case
from tests.unit.constraint.recognizer import Recognizer

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
        ": the top-level object, /properties/b/items, /properties/a, /properties/c, /additionalProperties"
    )
    free_order = explain(JsonSchemaConstraint(schema, property_order=PropertyOrder.ANY))
    assert not any("order" in line for line in free_order.lines)


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
    assert enforce(JsonSchemaConstraint(schema)).compiled.lark
    assert explained(schema)[0]


OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}
TAGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


@pytest.mark.parametrize(
    ("schema", "text", "at"),
    [
        (OPEN, '{"a": 1}', None),
        (OPEN, '{"b": 1, "a": 2}', 11),
        (OPEN, '{"a": 1, "a": 2}', 11),
        (OPEN, '{"a": 1', 7),
        (OPEN, '{"a": "é"}', 6),
        (OPEN, '{"é": 1, "é": 2}', 11),
        (OPEN, '{\n  "a": 1\n}', None),
        (OPEN, '{\n  "a":1\n}', 8),
        (OPEN, '{"a": 1} ', 8),
        (TAGS, '["x", "y"]', None),
        (TAGS, '["x", "x"]', 8),
        (TAGS, '["x", "y', 8),
        ({"type": "string", "pattern": "^[a-c]*$"}, '"abd"', 3),
        ({"type": "string", "pattern": "^[a-c]*$"}, '"\\u0061"', 1),
    ],
)
def test_a_text_leaves_a_schema_where_the_engine_would_stop_it(
    schema: Any, text: str, at: int | None
) -> None:
    assert leaves_at(enforce(JsonSchemaConstraint(schema)), text) == at


def test_expressions_and_gbnf_are_followed_too() -> None:
    assert leaves_at(enforce(RegexConstraint("[a-cé]{2}")), "éa") is None
    assert leaves_at(enforce(RegexConstraint("[a-cé]{2}")), "éaa") == 2
    assert leaves_at(enforce(GbnfConstraint('root ::= "a" "b"*')), "abbc") == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_text_leaves_the_printed_gbnf_where_it_leaves_what_runs(case: Case) -> None:
    """Unless only the comparison of items beside it stops the text."""
    found = enforce(JsonSchemaConstraint(case.schema, Whitespace.COMPACT))
    printed = Recognizer(parse_gbnf(found.gbnf()))
    for value in (*case.accept, *case.reject):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        at = leaves_at(found, text)
        assert at == printed.leaves_at(text) or (found.cost.unique_arrays and at is not None)
