"""Every refusal of a schema names the place in it and the reason, whatever refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.json_schema.document import bundled
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.errors import GrammarTooComplex, InvalidRequest, InvalidSchema, UnsupportedSchema
from tests.conformance.suites import SHARED, SUITES, load_suite, remotes
from tests.unit.constraint.grammars import grammar_alone

CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
LATEST = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS: dict[str, Any] = {
    "is not a JSON type": {"type": "strin"},
    "must be a number": {"minimum": "1"},
    "must be a finite number": {"minimum": float("inf")},
    "must be greater than 0": {"multipleOf": 0},
    "a pattern is a string": {"pattern": 1},
    "must be an integer of 0 or more": {"minLength": -1},
    "must be an array of names": {"required": "a"},
    "must be an object of schemas": {"properties": []},
    "must be an array of schemas": {"anyOf": {}},
    "must be an array": {"enum": 5},
    "must be an object": {"dependentSchemas": []},
    "must list property names": {"dependentRequired": {"a": [3]}},
    "a schema is an object or a boolean": {"items": 3},
    "a reference is a string": {"$ref": 3},
    "nothing is at": {"$ref": "#/nowhere"},
    "no anchor": {"$ref": "#nowhere"},
    "lookbehind": {"pattern": "(?<=x)a"},
    "no answer has more than": {"minItems": 2**53},
    "outside this document": {"$ref": "http://127.0.0.1:9/x"},
    "leads back to itself": {"$ref": "#/$defs/n"},
    "applies itself": {"allOf": [{"$ref": "#/$defs/m"}]},
    "under `not`": {"not": {"dependencies": {"a": ["b"]}}},
    "uniqueItems cannot be negated": {"not": {"uniqueItems": True}},
    "unevaluated items or properties cannot be negated": {"not": {"unevaluatedProperties": False}},
    "a schema beside contains": {"unevaluatedItems": {"type": "null"}, "contains": {"type": "string"}},
    "together with contains": {"type": "array", "uniqueItems": True, "contains": {"const": 1}},
    "of items by position": {
        "type": "array",
        "prefixItems": [{"type": "string"}],
        "items": {"type": "boolean"},
        "uniqueItems": True,
    },
    "of arrays that may not be longer": {
        "type": "array",
        "items": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}},
        "uniqueItems": True,
    },
    "of objects that may have no other properties": {
        "type": "array",
        "items": {
            **CLOSED,
            "properties": {"a": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}}},
        },
        "uniqueItems": True,
    },
    "where another array may be at the same place": {
        "anyOf": [{**STRINGS, "uniqueItems": True}, {**STRINGS, "items": {"enum": ["aa", "ab", 1]}}]
    },
    "multiply to too many states": {
        "type": "array",
        "minItems": 10,
        "maxItems": 10**6,
        "contains": {"const": 1},
        "maxContains": 500,
    },
    "schemas apply to one value in a chain": {"$ref": "#/$defs/c0"},
    "alternatives of one value multiply": {
        "anyOf": [{"type": "integer", "minimum": 3 * n, "maximum": 3 * n + 1} for n in range(450)]
    },
    "has more than 400 digits": {"type": "integer", "minimum": 10**500},
    "digits after the point": {"type": "number", "multipleOf": 1e-40},
    "too many digits to be checked": {"type": "number", "multipleOf": 987654321.123},
    "combining the string constraints": {
        "type": "string",
        "allOf": [{"pattern": f"{c}.*" * 2} for c in "abcdefghijklmnop"],
    },
    "needs more work than one request may use": {"not": {"enum": list(range(3000))}},
    "needs too many states": {"type": "string", "pattern": "(a|b)*a(a|b){14}", "minLength": 100},
    "repeats too much": {"type": "string", "pattern": "(?:[ab]{150}c){150}d", "maxLength": 30_000},
    "too many conditions on some property": {
        "type": "object",
        "allOf": [{"not": {"additionalProperties": {"not": {"const": n}}}} for n in range(12)],
    },
    "too many classes": {
        "patternProperties": {f"{a}.*{b}": {"const": a + b} for a in "abcd" for b in "efgh"}
    },
}
"""A schema for each kind of refusal, by words of its reason."""
MALFORMED: dict[str, Any] = {
    keyword: value
    for keywords, value in (
        (("dependentRequired", "dependentSchemas", "properties", "patternProperties", "$ref"), [1]),
        (
            ("enum", "required", "prefixItems", "allOf", "anyOf", "oneOf", "type", "minItems", "pattern"),
            {"a": 5},
        ),
        (("not", "if", "items", "contains", "propertyNames", "additionalProperties", "maximum"), "a"),
    )
    for keyword in keywords
}
"""Values that these keywords never have."""
DEFS: dict[str, Any] = {
    "n": {"$ref": "#/$defs/n"},
    "m": {"allOf": [{"$ref": "#/$defs/m"}]},
    **{f"c{n}": {"allOf": [{"$ref": f"#/$defs/c{n + 1}"}]} for n in range(100)},
    "c100": {"minLength": 1},
}


def refusal(schema: Any, *, with_memory: bool = True) -> InvalidRequest | None:
    """Why the server refuses a schema; None if it does not."""
    try:
        if with_memory:
            enforce(JsonSchemaConstraint(schema))
        else:
            grammar_alone(schema)
    except InvalidRequest as error:
        return error
    return None


def place_of(error: InvalidRequest) -> str:
    """The JSON Pointer that a refusal names, which its message has too."""
    assert isinstance(error, InvalidSchema | UnsupportedSchema | GrammarTooComplex), error
    assert error.pointer is not None and error.reason, error
    assert f" at {error.pointer or '/'}: {error.reason}" in error.message
    return error.pointer


@pytest.mark.parametrize("reason", SCHEMAS)
def test_a_refusal_names_its_place(reason: str) -> None:
    """Below a property that nothing else refers to."""
    place = "/properties/a~1b/items"
    schema = {
        "$defs": DEFS,
        "type": "object",
        "properties": {"x": {"type": "string"}, "a/b": {"items": SCHEMAS[reason]}},
    }
    refused = [
        error
        for with_memory in (True, False)
        if (error := refusal(schema, with_memory=with_memory)) is not None
    ]
    assert any(reason in error.message for error in refused), [error.message for error in refused]
    for error in refused:
        pointer = place_of(error)
        assert pointer.startswith((place, "/$defs/")), error.message


@pytest.mark.skipif(not SHARED.is_dir(), reason="the suites are not beside the repository")
@pytest.mark.parametrize("suite", SUITES)
def test_each_refused_schema_of_the_suites_is_told_its_place(suite: str) -> None:
    documents = remotes()
    for case in load_suite(suite, 12 if suite == "maskbench" else 3):
        error = refusal(bundled(case.schema, documents))
        if error is not None:
            place_of(error)


AROUND: dict[str, Callable[[Any], Any]] = {
    "itself": lambda own: own,
    "not": lambda own: {"not": own},
    "oneOf": lambda own: {"oneOf": [own, {"type": "object"}]},
    "if": lambda own: {"if": own, "then": {"minLength": 1}},
    "contains": lambda own: {"items": {"contains": own, "maxContains": 1}},
}


@pytest.mark.parametrize("keyword", MALFORMED)
@pytest.mark.parametrize("around", AROUND)
def test_a_malformed_keyword_is_refused_wherever_it_is(keyword: str, around: str) -> None:
    own = {keyword: MALFORMED[keyword], "then": {"maxLength": 3}}
    error = refusal({"then": True, **AROUND[around](own)})
    assert isinstance(error, InvalidSchema), error
    assert f"/{keyword}" in place_of(error)
