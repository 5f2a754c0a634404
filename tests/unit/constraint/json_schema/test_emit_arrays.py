"""Arrays as rules, judged by jsonschema over every short array of a few values."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from jan_serve.constraint.ast import choice
from jan_serve.constraint.json_schema.emit_arrays import array_expr
from jan_serve.core.constraint import Whitespace
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema
from tests.unit.constraint.json_schema.emitting import emitter_of, recognizer_of
from tests.unit.constraint.json_schema.schemas import is_valid

ARRAYS = [list(items) for length in range(5) for items in product([1, "a", None], repeat=length)]
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}

SCHEMAS: dict[str, dict[str, Any]] = {
    "anything": {},
    "counted": {"minItems": 2, "maxItems": 3},
    "none": {"maxItems": 0},
    "one kind": {"items": NUMBER},
    "one kind, counted": {"items": TEXT, "minItems": 1, "maxItems": 2},
    "positional": {"prefixItems": [NUMBER, TEXT]},
    "positional, no others": {"prefixItems": [NUMBER, TEXT], "items": False},
    "positional, all there": {"prefixItems": [NUMBER, TEXT], "items": False, "minItems": 2},
    "positional, then counted": {"prefixItems": [NUMBER], "items": TEXT, "minItems": 3, "maxItems": 4},
    "the end at a position": {"prefixItems": [NUMBER, False, TEXT]},
    "fewer than positions": {"prefixItems": [NUMBER, TEXT, NUMBER], "maxItems": 2},
    "one of a kind": {"contains": NUMBER},
    "two or three of a kind": {"contains": NUMBER, "minContains": 2, "maxContains": 3},
    "at most one of a kind": {"contains": NUMBER, "minContains": 0, "maxContains": 1},
    "of two kinds": {"allOf": [{"contains": NUMBER}, {"contains": TEXT, "maxContains": 1}]},
    "of a kind, among few": {"contains": {"const": 1}, "minContains": 2, "maxItems": 3},
    "of a kind, beside positions": {
        "prefixItems": [NUMBER],
        "contains": TEXT,
        "items": {"enum": ["a", None]},
    },
    "different, of few values": {"items": {"enum": [1, "a", None]}, "uniqueItems": True},
    "different, counted": {
        "items": {"enum": [1, "a", None]},
        "uniqueItems": True,
        "minItems": 2,
        "maxItems": 2,
    },
    "different at positions": {
        "prefixItems": [{"enum": [1, "a"]}, {"enum": ["a", None]}],
        "items": False,
        "uniqueItems": True,
    },
    "different kinds": {"prefixItems": [NUMBER, TEXT], "maxItems": 2, "uniqueItems": True},
    "different because alone": {"maxItems": 1, "uniqueItems": True},
    "different truths": {"items": {"enum": [None, True, 1]}, "uniqueItems": True, "minItems": 1},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_arrays_of_a_schema(name: str) -> None:
    schema = {"type": "array", **SCHEMAS[name]}
    emit, sets = emitter_of(schema)
    recognizer = recognizer_of(emit, choice([array_expr(emit, spec, "list") for spec in sets.array]))
    assert recognizer is not None
    for items in ARRAYS:
        text = json.dumps(items, separators=(",", ":"))
        assert recognizer.matches(text) is is_valid(schema, items), text


@pytest.mark.parametrize("whitespace", [Whitespace.FLEXIBLE, Whitespace.COMPACT])
def test_where_a_line_may_break(whitespace: Whitespace) -> None:
    emit, sets = emitter_of({"type": "array", "prefixItems": [NUMBER, NUMBER]}, whitespace=whitespace)
    recognizer = recognizer_of(emit, array_expr(emit, sets.array[0], "list"))
    assert recognizer is not None
    for text in ("[1, 2]", "[\n  1,\n  2\n]", "[\n]", "[ 1, 2 ]"):
        assert recognizer.matches(text) is (whitespace is Whitespace.FLEXIBLE), text
    assert recognizer.matches("[1,2]")
    for text in ("[1 ,2]", "[1,  2]", "[1,\n\n2]", "[,1]", "[1,]", "[1 2]"):
        assert not recognizer.matches(text), text


def test_counts_cost_few_rules() -> None:
    emit, sets = emitter_of({"type": "array", "items": NUMBER, "minItems": 100, "maxItems": 900})
    recognizer = recognizer_of(emit, array_expr(emit, sets.array[0], "list"))
    assert recognizer is not None
    assert len(emit.rules.rules) < 10
    for count in (99, 100, 900, 901):
        assert recognizer.matches("[" + ",".join(["7"] * count) + "]") is (100 <= count <= 900)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"items": TEXT, "uniqueItems": True}, "few possible values"),
        ({"items": {"enum": list(range(9))}, "uniqueItems": True}, "at most 8 values"),
        (
            {"items": {"enum": [1, 2]}, "uniqueItems": True, "contains": {"const": 1}},
            "together with contains",
        ),
    ],
)
def test_uniqueness_that_no_grammar_decides_is_refused(schema: dict[str, Any], reason: str) -> None:
    emit, sets = emitter_of({"type": "array", **schema})
    with pytest.raises(UnsupportedSchema, match=reason) as caught:
        array_expr(emit, sets.array[0], "list")
    assert caught.value.keyword == "uniqueItems"


def test_counts_that_multiply_are_refused() -> None:
    emit, sets = emitter_of(
        {"type": "array", "minItems": 10, "maxItems": 500, "contains": NUMBER, "maxContains": 50}
    )
    with pytest.raises(GrammarTooComplex, match="maxContains"):
        array_expr(emit, sets.array[0], "list")
