"""Schemas of few keywords over every small value, judged by jsonschema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import permutations, product
from typing import Any, cast

import pytest

from jan_serve.core.constraint import Whitespace
from jan_serve.errors import UnsupportedSchema
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone, grammar_in_rules
from tests.unit.constraint.json_schema.schemas import is_valid
from tests.unit.constraint.recognizer import Recognizer

NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
ARRAYS = [list(items) for length in range(5) for items in product([1, "a", None], repeat=length)]
OBJECTS = [
    dict(zip(names, values, strict=True))
    for count in range(4)
    for names in permutations("abx", count)
    for values in product([1, "s"], repeat=count)
]

ARRAY_SCHEMAS: dict[str, dict[str, Any]] = table(__file__, "array_schemas")
OBJECT_SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = table(__file__, "object_schemas")
ONLY_COMPARED = {"counted", "some property of a kind", "some listed or other property"}
"""Where names must differ."""
A, B = {"properties": {"a": {"type": "integer"}}}, {"properties": {"b": True}}
UNEVALUATED: dict[str, dict[str, Any]] = table(__file__, "unevaluated")


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _alone(schema: Any) -> Recognizer:
    return Recognizer(grammar_alone(schema, whitespace=Whitespace.COMPACT))


def _judge(recognizer: Recognizer, schema: Any, values: Iterable[Any]) -> None:
    """A valid value may be written in some order of its members."""
    for value in values:
        orders: list[Any] = [value]
        if isinstance(value, dict):
            orders = [dict(order) for order in permutations(cast("dict[str, Any]", value).items())]
        taken = any(recognizer.matches(_compact(order)) for order in orders)
        assert taken is is_valid(schema, value), value


@pytest.mark.parametrize("name", ARRAY_SCHEMAS)
def test_arrays_of_a_schema(name: str) -> None:
    schema = {"type": "array", **ARRAY_SCHEMAS[name]}
    recognizer = _alone(schema)
    for items in ARRAYS:
        assert recognizer.matches(_compact(items)) is is_valid(schema, items), items


def _in_order(members: dict[str, Any], listed: str, required: list[str]) -> bool:
    """Listed names in their order, and no others before the last one that must be there."""
    names = list(members)
    places = [listed.index(name) for name in names if name in listed]
    last = max((names.index(name) for name in required if name in names), default=0)
    return places == sorted(places) and all(name in listed for name in names[:last])


@pytest.mark.parametrize("name", OBJECT_SCHEMAS)
def test_objects_of_a_schema(name: str) -> None:
    listed, keywords = OBJECT_SCHEMAS[name]
    schema = {"type": "object", **keywords}
    _judge(Recognizer(grammar_in_rules(schema, whitespace=Whitespace.COMPACT)[0]), schema, OBJECTS)
    if name in ONLY_COMPARED:
        return
    recognizer = _alone(schema)
    for members in OBJECTS:
        expected = is_valid(schema, members) and _in_order(members, listed, keywords.get("required", []))
        assert recognizer.matches(_compact(members)) is expected, members


NEGATED: dict[str, Any] = {
    **{f"arrays, {name}": schema for name, schema in ARRAY_SCHEMAS.items() if "uniqueItems" not in schema},
    **{f"objects, {name}": schema for name, (_, schema) in OBJECT_SCHEMAS.items()},
    "one array": {"const": [1, "a"]},
    "one object": {"const": {"a": 1, "x": "s"}},
    "some values": {"enum": [[], [None], {}, {"b": "s"}, 1]},
}


@pytest.mark.parametrize("name", NEGATED)
def test_values_that_break_a_schema(name: str) -> None:
    schema = {"not": NEGATED[name]}
    try:
        grammar, _ = grammar_in_rules(schema, whitespace=Whitespace.COMPACT)
    except UnsupportedSchema as error:
        assert "no JSON value" in error.reason
        assert all(is_valid(NEGATED[name], value) for value in (*ARRAYS, *OBJECTS))
        return
    _judge(Recognizer(grammar), schema, [*ARRAYS, *OBJECTS, 1, None])


@pytest.mark.parametrize("name", UNEVALUATED)
def test_closed_over_what_is_not_evaluated(name: str) -> None:
    recognizer = Recognizer(grammar_in_rules(UNEVALUATED[name], whitespace=Whitespace.COMPACT)[0])
    _judge(recognizer, UNEVALUATED[name], [*OBJECTS, *ARRAYS, 1, None])


def _kinds(count: int, **each: Any) -> list[dict[str, Any]]:
    """Alternatives that `kind` tells apart."""
    return [
        {"properties": {"kind": {"const": f"k{n}"}, f"p{n}": {"type": "integer"}}, **each}
        for n in range(count)
    ]


ALTERNATIVES: dict[str, dict[str, Any]] = {
    "a kind that must be there": {"required": ["kind"], "oneOf": _kinds(12)},
    "asked for beside the alternatives": {"allOf": [{"required": ["kind"]}, {"oneOf": _kinds(12)}]},
    "a kind that may be missing": {"oneOf": _kinds(12, additionalProperties=False)},
    "two names that must be there": {
        "oneOf": [*_kinds(11, required=["kind", "p0"]), {"required": ["kind", "p1"]}]
    },
    "names that only one kind may have": {
        "dependentSchemas": {
            f"p{n}": {"properties": {"kind": {"enum": [f"k{n}", f"k{n % 3}"]}}} for n in range(14)
        }
    },
    "one name of each of several sets": {
        "patternProperties": {"^p[0-9]$": {"type": "integer"}},
        "additionalProperties": False,
        "not": {
            "anyOf": [
                {"propertyNames": {"not": {"enum": names}}}
                for names in (["p0", "p1"], ["p0", "p9"], ["p1", "p9"], ["p0", "p1", "p3"])
            ]
        },
    },
    "none of many": {"not": {"anyOf": _kinds(12, required=["kind"])}},
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_alternatives_that_a_property_tells_apart_do_not_multiply(name: str) -> None:
    schema = {"type": "object", **ALTERNATIVES[name]}
    grammar = grammar_alone(schema, whitespace=Whitespace.COMPACT)
    assert len(grammar.rules) < 600
    scalars: list[Any] = [None, 1, "x"]
    values: list[dict[str, Any]] = []
    for kind, first, second, third in product([None, "k0", "k1", "k11", "other"], scalars, scalars, scalars):
        members = {"kind": kind, "p0": first, "p1": second, "p9": third}
        values.append({key: member for key, member in members.items() if member is not None})
    _judge(Recognizer(grammar), schema, values)


@pytest.mark.parametrize("depth", [0, 1, 200])
def test_a_recursive_schema_is_one_rule(depth: int) -> None:
    grammar = grammar_alone({"type": "array", "items": {"$ref": "#"}}, whitespace=Whitespace.COMPACT)
    assert len(grammar.rules) == 1
    assert Recognizer(grammar).matches("[" * (depth + 1) + "]" * (depth + 1))
    assert not Recognizer(grammar).matches("[" * (depth + 1) + "1" + "]" * (depth + 1))
