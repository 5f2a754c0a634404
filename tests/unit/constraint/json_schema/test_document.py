from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema
import pytest
from jsonschema.protocols import Validator

from jan_serve.constraint.json_schema.document import Document, bundled
from jan_serve.errors import InvalidSchema, UnsupportedSchema
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import Recognizer, matches

_2020 = "https://json-schema.org/draft/2020-12/schema"
_LIST = {
    "$id": "list",
    "type": "array",
    "items": {"$dynamicRef": "#item"},
    "maxItems": 2,
    "$defs": {"any": {"$dynamicAnchor": "item", "type": ["integer", "string", "array"]}},
}
_OF_STRINGS = {
    "$id": "strings",
    "$ref": "list",
    "$defs": {"one": {"$dynamicAnchor": "item", "type": "string"}},
}
_OF_LISTS = {
    "$id": "lists",
    "$ref": "list",
    "$defs": {"one": {"$dynamicAnchor": "item", "anyOf": [{"$ref": "strings"}, {"type": "null"}]}},
}
_TREE = {
    "$id": "tree",
    "$recursiveAnchor": True,
    "type": "object",
    "properties": {"a": {"type": "array", "maxItems": 1, "items": {"$recursiveRef": "#"}}},
}
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"$ref": "strings"},
    {"$ref": "lists"},
    {"$ref": "list"},
    {"items": {"$ref": "strings"}, "type": "array"},
    {"$ref": "lists", "$defs": {"mine": {"$dynamicAnchor": "item", "type": "integer"}}},
    {"anyOf": [{"$ref": "strings"}, {"$ref": "lists"}]},
    {"type": "array", "not": {"$ref": "strings"}},
    {"$ref": "list#/items", "$defs": {"mine": {"$dynamicAnchor": "item", "const": 1}}},
    {"$dynamicRef": "list#item", "$defs": {"mine": {"$anchor": "item", "const": 1}}},
)
_ATOMS: tuple[Any, ...] = (1, "x", None, [], ["x"], [1], [None])
VALUES: tuple[Any, ...] = (
    *_ATOMS,
    *([a, b] for a, b in itertools.product(_ATOMS, repeat=2)),
    *([[a, b]] for a, b in itertools.product(_ATOMS[:4], repeat=2)),
)


def _agrees(schema: dict[str, Any], kind: type[Validator], values: tuple[Any, ...]) -> None:
    judge = kind(schema)
    recognizer = Recognizer(grammar_alone(schema))
    for value in values:
        assert recognizer.matches(json.dumps(value)) is judge.is_valid(value), value


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_a_dynamic_reference_means_the_outermost_anchor_on_the_way(number: int) -> None:
    own = SCHEMAS[number]
    parts = {"list": _LIST, "strings": _OF_STRINGS, "lists": _OF_LISTS, **own.get("$defs", {})}
    schema: dict[str, Any] = {"$schema": _2020, "$id": "https://example.com/root", **own, "$defs": parts}
    _agrees(schema, jsonschema.Draft202012Validator, VALUES)


@pytest.mark.parametrize("anchored", [True, False])
def test_a_recursive_reference_means_the_outermost_resource_on_the_way(anchored: bool) -> None:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$id": "https://example.com/root",
        "$recursiveAnchor": anchored,
        "$ref": "tree",
        "required": ["b"],
        "properties": {"b": {}},
        "$defs": {"tree": _TREE},
    }
    values: tuple[dict[str, Any], ...] = (
        {},
        {"b": 1},
        {"b": 1, "a": [{}]},
        {"b": 1, "a": [{"b": 1}]},
        {"b": 1, "a": [{"a": [{}]}]},
    )
    _agrees(schema, jsonschema.Draft201909Validator, values)


def test_an_identifier_is_relative_to_what_is_around_it_once() -> None:
    schema = {
        "$schema": _2020,
        "$id": "https://example.com/base/root.json",
        "$ref": "in/one.json",
        "$defs": {
            "one": {"$id": "in/one.json", "$ref": "./two.json#two"},
            "two": {"$id": "in/two.json", "$anchor": "two", "type": "integer"},
        },
    }
    _agrees(schema, jsonschema.Draft202012Validator, (1, "1", None))


def test_a_dynamic_anchor_twice_in_one_resource_is_refused() -> None:
    parts = [{"$dynamicAnchor": "a", "type": kind} for kind in ("string", "null")]
    other = {"$id": "other", "$dynamicAnchor": "a"}
    schema = {"$ref": "#/$defs/0", "$defs": {"0": {"$dynamicRef": "#a"}, "1": other}, "allOf": parts}
    with pytest.raises(InvalidSchema, match="twice"):
        grammar_alone(schema)


DOCUMENTS: dict[str, Any] = table(__file__, "documents")
CASES: tuple[tuple[Any, tuple[str, ...], tuple[str, ...]], ...] = table(__file__, "cases")


@pytest.mark.parametrize(("schema", "valid", "invalid"), CASES)
def test_documents_are_found_by_their_uri(
    schema: Any, valid: tuple[str, ...], invalid: tuple[str, ...]
) -> None:
    grammar = grammar_alone(bundled(schema, DOCUMENTS))
    assert [text for text in valid if not matches(grammar, text)] == []
    assert [text for text in invalid if matches(grammar, text)] == []


@pytest.mark.parametrize(
    "schema", [True, {"$ref": "#/$defs/a", "$defs": {"a": {}}}, {"$ref": "other.json"}, {"items": 3}, [1]]
)
def test_a_schema_that_needs_no_document_is_itself(schema: Any) -> None:
    assert bundled(schema, DOCUMENTS) is schema


@pytest.mark.parametrize("name", ["draft4.json", "nowhere.json", "unused.json"])
def test_what_is_not_there_or_of_another_draft_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedSchema, match="outside this document"):
        grammar_alone(bundled({"$schema": _2020, "$ref": name}, DOCUMENTS))


def test_a_schema_without_a_draft_has_that_of_what_it_refers_to() -> None:
    seven, latest = "http://json-schema.org/draft-07/schema#", _2020
    documents = {
        "a": {"$schema": seven, "definitions": {"b": {"$id": "#b", "type": "integer"}, "c": {"$ref": "#b"}}},
        "d": {"$schema": latest, "type": "integer"},
        "e": {"type": "integer"},
    }
    found = bundled({"$ref": "a#/definitions/c"}, documents)
    assert found["$schema"] == seven
    grammar = grammar_alone(found)
    assert matches(grammar, "1") and not matches(grammar, "true")
    assert bundled({"$ref": "d"}, documents)["$schema"] == latest
    assert "$schema" not in bundled({"$ref": "e"}, documents)
    with pytest.raises(UnsupportedSchema, match="outside this document"):
        grammar_alone(bundled({"$schema": latest, "$ref": "a#/definitions/c"}, documents))


_PART: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"enum": ["x"]}, "n": {"items": {"minLength": 2}}},
}


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (json.loads(json.dumps(_PART)), True),
        ({**_PART, "title": "Part", "description": "d", "default": {}, "$comment": "c"}, True),
        ({**_PART, "definitions": {"unused": {"type": "null"}}}, True),
        (
            {**_PART, "properties": {**_PART["properties"], "n": {"title": "N", "items": {"minLength": 2}}}},
            True,
        ),
        ({**_PART, "properties": {**_PART["properties"], "title": {"enum": ["y"]}}}, False),
        ({**_PART, "properties": {"n": _PART["properties"]["n"]}}, False),
        ({**_PART, "properties": {**_PART["properties"], "n": {"items": {"minLength": 3}}}}, False),
        ({**_PART, "properties": dict(reversed(_PART["properties"].items()))}, False),
        ({**_PART, "nullable": True}, False),
        ({**_PART, "$id": "elsewhere"}, False),
    ],
)
def test_schemas_that_say_the_same_are_one(other: dict[str, Any], alike: bool) -> None:
    document = Document({"properties": {"a": _PART, "b": other}})
    first, second = (document.child(document.root, "properties", name) for name in "ab")
    assert (first is second) is alike


@pytest.mark.parametrize(
    "values", [(1, True), (1, 1.0), (0, False), ("1", 1), ({"title": 1}, {"title": 2}), ([1], [True])]
)
def test_values_that_python_takes_for_equal_stay_apart(values: tuple[Any, Any]) -> None:
    document = Document({"anyOf": [{"const": value} for value in values]})
    first, second = (document.child(document.root, "anyOf", number) for number in range(2))
    assert first is not second


def test_a_grammar_does_not_grow_with_copies_of_a_part() -> None:
    def rules(copies: int) -> int:
        parts = {f"p{number}": {"description": str(number), "items": _PART} for number in range(copies)}
        return len(grammar_alone({"type": "object", "properties": parts, "required": [*parts]}).rules)

    assert rules(40) < rules(2) + 5
