"""Meta-schemas: they agree with those of jsonschema on what a schema is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema.validators import validator_for

from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.json_schema.keywords import DRAFTS
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder
from tests.conformance.uniqueness_oracle import UniquenessOracle

ORACLE = UniquenessOracle()
URIS = [uri for uri, draft in DRAFTS.items() if draft >= 4]
SCHEMAS: list[Any] = [
    {},
    True,
    1,
    {"type": "string", "minLength": 2, "maxLength": -1},
    {"type": ["string", "null"]},
    {"type": ["string", "string"]},
    {"type": "text"},
    {"type": 1},
    {"properties": {"a": {"type": "integer"}, "b": {"enum": [1, "x"]}}, "required": ["a", "b"]},
    {"properties": {"a": {"type": "int"}}},
    {"required": ["a", "a"]},
    {"required": []},
    {"items": {"type": "null"}},
    {"items": [{"type": "null"}, {}]},
    {"items": [{"minItems": "1"}]},
    {"prefixItems": [{"type": 7}]},
    {"additionalProperties": False},
    {"additionalProperties": {"type": "null"}},
    {"additionalItems": 1},
    {"dependencies": {"a": ["b"], "c": {"type": "null"}}},
    {"dependencies": {"a": 1}},
    {"dependentRequired": {"a": [1]}},
    {"multipleOf": 0},
    {"multipleOf": 0.5},
    {"exclusiveMinimum": 1},
    {"exclusiveMinimum": True},
    {"exclusiveMinimum": True, "minimum": 0},
    {"allOf": [{"not": {"anyOf": [{"const": 1}]}}]},
    {"allOf": []},
    {"oneOf": {}},
    {"if": {"type": 1}},
    {"contains": {"type": 1}},
    {"$defs": {"a": {"type": 1}}},
    {"definitions": {"a": {"type": 1}}},
    {"title": 1},
    {"description": "x", "default": [1], "unknown": {"type": 1}},
    {"uniqueItems": "yes"},
    {"enum": 1},
]


@pytest.mark.parametrize("uri", URIS)
def test_schemas_are_what_the_draft_says(uri: str) -> None:
    compiled = enforce(JsonSchemaConstraint({"$ref": f"{uri}#"}, None, PropertyOrder.ANY)).compiled()
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    meta: Any = validator_for({"$schema": uri + ("#" if "draft-" in uri else "")}).META_SCHEMA
    kind: Any = validator_for(meta)
    for schema in SCHEMAS:
        valid = kind(meta).is_valid(schema)
        assert ORACLE.accepts(matcher, json.dumps(schema)) is valid, (uri, schema)


def test_a_part_of_a_meta_schema_may_be_named() -> None:
    schema = {"$ref": "http://json-schema.org/draft-04/schema#/properties/title"}
    compiled = enforce(JsonSchemaConstraint(schema)).compiled()
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    assert ORACLE.accepts(matcher, '"x"')
    assert not ORACLE.accepts(matcher, "1")
