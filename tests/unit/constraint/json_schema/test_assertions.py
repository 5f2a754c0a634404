"""The keywords of one schema as type sets, against jsonschema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.json_schema.assertions import Assertions
from jan_serve.constraint.json_schema.document import Document, Node
from jan_serve.constraint.json_schema.terms import Terms
from jan_serve.errors import InvalidSchema, UnsupportedSchema
from tests.unit.constraint.json_schema.assertion_schemas import ASSERTION_SCHEMAS
from tests.unit.constraint.json_schema.schemas import VALUES, is_valid
from tests.unit.constraint.json_schema.type_sets import allows


def read(schema: Any) -> tuple[Assertions, Node]:
    document = Document(schema)
    return Assertions(document, Terms(document)), document.root


@settings(max_examples=300)
@given(ASSERTION_SCHEMAS, st.lists(VALUES, min_size=12, max_size=12))
def test_values_that_satisfy_the_keywords(schema: dict[str, Any], values: list[Any]) -> None:
    assertions, node = read(schema)
    allowed = assertions.allowed(node)
    for value in values:
        assert allows(allowed, value) is is_valid(schema, value), value


@given(VALUES, st.lists(VALUES, min_size=12, max_size=12))
def test_a_constant_is_one_value(constant: Any, values: list[Any]) -> None:
    assertions, node = read({"const": constant})
    sets = assertions.constant(node, constant)
    assert allows(sets, constant)
    for value in values:
        assert allows(sets, value) is is_valid({"const": constant}, value), value


OLDER: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "draft 4: a bound that excludes itself": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        [2, "x"],
        [1, 0],
    ),
    "draft 4: one that does not": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 1, "exclusiveMaximum": False},
        [1],
        [2],
    ),
    "draft 7: positional items": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": [{"type": "null"}],
            "additionalItems": {"type": "string"},
        },
        [[], [None], [None, "a", "b"]],
        [[1], [None, 1], [None, "a", 1]],
    ),
    "draft 3: a property says that it is required": (
        {"$schema": "http://json-schema.org/draft-03/schema#", "required": True, "type": "object"},
        [{}, {"a": 1}],
        [1],
    ),
    "integral floats count": ({"minLength": 2.0, "type": "string"}, ["ab"], ["a"]),
    "unique items": ({"type": "array", "uniqueItems": True}, [[1, True], []], [[1, 1.0], ["a", "a"]]),
}


@pytest.mark.parametrize("name", OLDER)
def test_spellings_of_older_drafts(name: str) -> None:
    schema, accepted, refused = OLDER[name]
    assertions, node = read(schema)
    allowed = assertions.allowed(node)
    assert [value for value in [*accepted, *refused] if allows(allowed, value)] == accepted


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin"}, "/type"),
        ({"type": ["null", 3]}, "/type"),
        ({"minimum": "1"}, "/minimum"),
        ({"maximum": True}, "/maximum"),
        ({"exclusiveMinimum": None, "exclusiveMaximum": "2"}, "/exclusiveMaximum"),
        ({"minimum": float("nan")}, "/minimum"),
        ({"minimum": float("inf")}, "/minimum"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"multipleOf": -1.5}, "/multipleOf"),
        ({"pattern": 3}, "/pattern"),
        ({"minLength": -1}, "/minLength"),
        ({"maxLength": 1.5}, "/maxLength"),
        ({"minItems": True}, "/minItems"),
        ({"prefixItems": {}}, "/prefixItems"),
        ({"contains": True, "minContains": "1"}, "/minContains"),
        ({"properties": []}, "/properties"),
        ({"patternProperties": []}, "/patternProperties"),
        ({"required": "a"}, "/required"),
        ({"required": ["a", 1]}, "/required"),
        ({"required": True}, "/required"),
        ({"maxProperties": None}, "/maxProperties"),
    ],
)
def test_a_wrong_value_names_its_place(schema: dict[str, Any], place: str) -> None:
    assertions, node = read(schema)
    with pytest.raises(InvalidSchema) as caught:
        assertions.allowed(node)
    assert caught.value.pointer == place


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_pattern_that_cannot_be_kept_names_itself(keyword: str) -> None:
    assertions, node = read({keyword: "(a)\\1" if keyword == "pattern" else {"(a)\\1": True}})
    with pytest.raises(UnsupportedSchema, match="at character 3 of") as caught:
        assertions.allowed(node)
    assert caught.value.keyword == keyword


def test_a_format_without_rules_is_an_annotation() -> None:
    assertions, node = read({"format": "no-such", "contentEncoding": "base64"})
    allowed = assertions.allowed(node)
    assert allows(allowed, "YQ==")
    assert not allows(allowed, "YQ=")
