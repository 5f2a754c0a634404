from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint.json_schema.bundle import bundled
from jan_serve.errors import UnsupportedSchema
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import matches

DOCUMENTS: dict[str, Any] = {
    "address.json": {
        "type": "object",
        "properties": {"country": {"$ref": "country.json"}},
        "required": ["country"],
        "additionalProperties": False,
    },
    "country.json": {"enum": ["FR", "IT"]},
    "https://example.com/units": {
        "$id": "https://example.com/units",
        "$defs": {"metre": {"$anchor": "metre", "const": "m"}},
        "type": "string",
    },
    "https://example.com/alias": {"$id": "https://example.com/real", "type": "null"},
    "https://example.com/list": {
        "items": {"$dynamicRef": "#item"},
        "$defs": {"any": {"$dynamicAnchor": "item"}},
    },
    "draft4.json": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "null"},
    "unused.json": {"$ref": "nowhere.json"},
}
CASES: tuple[tuple[Any, tuple[str, ...], tuple[str, ...]], ...] = (
    ({"$ref": "address.json"}, ('{"country": "FR"}',), ('{"country": "DE"}', "{}")),
    (
        {"type": "array", "items": {"$ref": "country.json"}, "$defs": {"country.json": {"const": 1}}},
        ('["IT"]',),
        ("[1]",),
    ),
    ({"$ref": "https://example.com/units#metre"}, ('"m"',), ('"x"',)),
    ({"$ref": "https://example.com/units#/$defs/metre"}, ('"m"',), ('"x"',)),
    ({"$ref": "https://example.com/alias"}, ("null",), ("1",)),
    (
        {
            "$id": "https://example.com/mine",
            "$ref": "list",
            "type": "array",
            "$defs": {"mine": {"$dynamicAnchor": "item", "type": "null"}},
        },
        ("[null]",),
        ("[1]",),
    ),
    (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"i": {"type": "integer"}},
            "properties": {"a": {"$ref": "country.json"}, "b": {"$ref": "#/definitions/i"}},
            "type": "object",
        },
        ('{"a": "FR", "b": 1}',),
        ('{"a": "x"}', '{"b": "x"}'),
    ),
)


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
        grammar_alone(bundled({"$ref": name}, DOCUMENTS))
