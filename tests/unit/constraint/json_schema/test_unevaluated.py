"""What a schema has not evaluated: objects and arrays closed over it, against jsonschema."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from jan_serve.constraint.json_schema.document import Document
from jan_serve.constraint.json_schema.expand import Expander
from jan_serve.constraint.json_schema.keywords import UNEVALUATED
from jan_serve.errors import UnsupportedSchema
from tests.unit.constraint.json_schema.schemas import is_valid
from tests.unit.constraint.json_schema.type_sets import allows

OBJECTS: list[Any] = [
    {name: value for name, value in zip("abx", values, strict=True) if value is not None}
    for values in product([None, 1, "s"], repeat=3)
]
ARRAYS: list[Any] = [list(items) for length in range(4) for items in product([1, "s"], repeat=length)]
A, B = {"properties": {"a": {"type": "integer"}}}, {"properties": {"b": True}}

SCHEMAS: dict[str, dict[str, Any]] = {
    "beside properties": {**A, "unevaluatedProperties": False},
    "through allOf": {"allOf": [A, B], "unevaluatedProperties": False},
    "through the branches that hold": {"anyOf": [A, B], "unevaluatedProperties": False},
    "through one branch": {
        "oneOf": [{**A, "required": ["a"]}, {**B, "required": ["b"], "maxProperties": 1}],
        "unevaluatedProperties": False,
    },
    "through a condition": {
        "if": {"required": ["a"], **A},
        "then": B,
        "else": {"properties": {"x": True}},
        "unevaluatedProperties": False,
    },
    "not through what fails": {"not": {"required": ["b"], **B}, **A, "unevaluatedProperties": False},
    "a schema for the rest": {**A, "unevaluatedProperties": {"type": "string"}},
    "patterns": {"patternProperties": {"^[ab]": True}, "unevaluatedProperties": False},
    "inside, all is evaluated": {"allOf": [{"unevaluatedProperties": True}], "unevaluatedProperties": False},
    "beside additional ones": {
        **A,
        "additionalProperties": {"type": "integer"},
        "unevaluatedProperties": False,
    },
    "items after positional ones": {"prefixItems": [{"type": "integer"}], "unevaluatedItems": False},
    "the longest of two": {
        "allOf": [{"prefixItems": [True]}, {"prefixItems": [True, {"type": "string"}]}],
        "unevaluatedItems": False,
    },
    "a schema for further items": {"prefixItems": [True], "unevaluatedItems": {"type": "string"}},
    "items cover all": {"items": {"type": "integer"}, "unevaluatedItems": False},
    "contains covers what it finds": {"contains": {"type": "integer"}, "unevaluatedItems": False},
    "after a branch": {
        "anyOf": [{"prefixItems": [{"type": "integer"}]}, {"prefixItems": [True, {"type": "string"}]}],
        "unevaluatedItems": False,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_closed_over_what_is_not_evaluated(name: str) -> None:
    schema = SCHEMAS[name]
    document = Document(schema)
    expander = Expander(document)
    sets = expander.expand((document.root.positive,))
    values: list[Any] = [*OBJECTS, *ARRAYS, 1, None]
    for value in values:
        assert allows(sets, value) is is_valid(schema, value), value


def test_a_schema_for_the_rest_beside_contains_is_refused() -> None:
    schema = {"contains": {"type": "integer"}, "unevaluatedItems": {"type": "string"}}
    document = Document({"properties": {"a": schema}})
    node = document.child(document.root, "properties", "a")
    with pytest.raises(UnsupportedSchema) as caught:
        Expander(document).expand((node.positive,))
    assert (caught.value.pointer, caught.value.keyword) == ("/properties/a", "unevaluatedItems")


MENTIONS: list[tuple[Any, bool]] = [
    ({"unevaluatedItems": False}, True),
    ({"$defs": {"a": {"anyOf": [True, {"unevaluatedProperties": {}}]}}}, True),
    ({"properties": {"a": {"items": {}}}}, False),
    ({"enum": ["unevaluatedItems"], "$dynamicRef": "#"}, False),
    (True, False),
]


@pytest.mark.parametrize(("schema", "mentioned"), MENTIONS)
def test_the_keywords_are_found_anywhere(schema: Any, mentioned: bool) -> None:
    assert Document(schema).mentions(UNEVALUATED) is mentioned
