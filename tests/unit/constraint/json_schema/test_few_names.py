"""Objects whose patterns name few properties, as the engine takes them, over every object of these names."""

from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any

import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder
from tests.conformance.uniqueness_oracle import UniquenessOracle
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.json_schema.schemas import is_valid

INTEGER = {"type": "integer"}
CLOSED = {"type": "object", "additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "a listed name": CLOSED
    | {"properties": {"user_id": True}, "patternProperties": {"^(user_id)$": INTEGER}},
    "one that begins alike": CLOSED | {"properties": {"us": INTEGER}, "patternProperties": {"^us(er)?$": {}}},
    "one that goes on": CLOSED | {"properties": {"user_id": {}}, "patternProperties": {"^us(er)?$": INTEGER}},
    "with a required one": CLOSED
    | {"properties": {"us": {}}, "required": ["us"], "patternProperties": {"^(user|x)$": INTEGER}},
    "a required one of the pattern": CLOSED
    | {"properties": {"us": {}}, "required": ["x"], "patternProperties": {"^(user|x)$": INTEGER}},
    "counted": CLOSED
    | {"properties": {"us": {}}, "patternProperties": {"^(user|x)$": INTEGER}, "minProperties": 2},
    "at most": CLOSED
    | {"properties": {"us": {}}, "patternProperties": {"^(user|x)$": INTEGER}, "maxProperties": 2},
    "a condition on some": CLOSED
    | {"patternProperties": {"^(us|user|x)$": {}}, "not": {"additionalProperties": INTEGER}},
    "of a list": {
        "type": "object",
        "propertyNames": {"enum": ["us", "user", "x"]},
        "properties": {"us": INTEGER},
    },
    "in another object": {
        "anyOf": [
            CLOSED | {"properties": {"us": {}}, "patternProperties": {"^user$": INTEGER}},
            CLOSED | {"properties": {"x": {}}, "patternProperties": {"^us(er)?$": {"const": "s"}}},
        ]
    },
    "beside another object": {
        "anyOf": [
            CLOSED | {"patternProperties": {"^(us|x)$": INTEGER}},
            CLOSED | {"patternProperties": {"^(x|user)$": {"type": "string"}}},
        ]
    },
    "patterns that overlap": CLOSED
    | {"patternProperties": {"^us(er)?$": {"minimum": 1}, "^(user|x)$": INTEGER}, "properties": {"x": {}}},
}
OBJECTS = [
    dict(zip(names, values, strict=True))
    for count in range(4)
    for names in permutations(("us", "user", "user_id", "x"), count)
    for values in product([1, "s"], repeat=count)
]


@pytest.mark.parametrize("order", [PropertyOrder.ANY, PropertyOrder.SCHEMA])
@pytest.mark.parametrize("name", SCHEMAS)
def test_names_of_patterns(name: str, order: PropertyOrder) -> None:
    """In any order as they come; in the schema's, each in some order."""
    schema = SCHEMAS[name]
    grammar = enforce(JsonSchemaConstraint(schema, property_order=order)).compiled
    assert grammar.uniqueness is not None and not grammar.uniqueness.unlisted
    oracle = UniquenessOracle()
    compiled = oracle.compile(grammar.lark, grammar.uniqueness)
    for value in OBJECTS:
        texts = (
            [json.dumps(value)]
            if order is PropertyOrder.ANY
            else [json.dumps(dict(members)) for members in permutations(value.items())]
        )
        assert any(oracle.accepts(compiled, text) for text in texts) is is_valid(schema, value), value


def test_those_that_are_not_listed_come_in_any_order() -> None:
    grammar = enforce(JsonSchemaConstraint(SCHEMAS["with a required one"])).compiled
    assert grammar.uniqueness is not None
    oracle = UniquenessOracle()
    compiled = oracle.compile(grammar.lark, grammar.uniqueness)
    for text in ('{"us": 0, "x": 1, "user": 2}', '{"us": 0, "user": 2, "x": 1}'):
        assert oracle.accepts(compiled, text)
    assert not oracle.accepts(compiled, '{"x": 1, "us": 0}')
    assert not oracle.accepts(compiled, '{"us": 0, "x": 1, "x": 1}')


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_grammar_alone_has_each_name_once(name: str) -> None:
    assert grammar_alone(SCHEMAS[name])
    assert enforce(JsonSchemaConstraint(SCHEMAS[name])).gbnf()
