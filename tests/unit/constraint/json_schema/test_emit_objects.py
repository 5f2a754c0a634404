"""Objects as rules, judged by jsonschema over every small object in every order."""

from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any

import pytest

from jan_serve.constraint.ast import NEVER, Expr, Literal, choice
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.json_schema.emit_objects import Field, Shape, object_expr, plain_members
from jan_serve.constraint.mode import Mode
from jan_serve.core.constraint import Whitespace
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.json_schema.emitting import emitter_of, recognizer_of
from tests.unit.constraint.json_schema.schemas import is_valid
from tests.unit.constraint.matching import texts
from tests.unit.constraint.recognizer import Recognizer

OBJECTS = [
    dict(zip(names, values, strict=True))
    for count in range(4)
    for names in permutations("abx", count)
    for values in product([1, "s"], repeat=count)
]
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}

SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "anything": ("", {}),
    "listed": ("ab", {"properties": {"a": NUMBER, "b": TEXT}}),
    "in their own order": ("ba", {"properties": {"b": NUMBER, "a": TEXT}}),
    "closed": ("ab", {"properties": {"a": NUMBER, "b": TEXT}, "additionalProperties": False}),
    "the first must be there": ("ab", {"properties": {"a": NUMBER, "b": TEXT}, "required": ["a"]}),
    "the last must be there": ("ab", {"properties": {"a": NUMBER, "b": TEXT}, "required": ["b"]}),
    "both must be there": ("ab", {"properties": {"a": True, "b": True}, "required": ["b", "a"]}),
    "only asked for": ("b", {"required": ["b"]}),
    "others of a kind": ("a", {"properties": {"a": NUMBER}, "additionalProperties": TEXT}),
    "others by pattern": ("a", {"properties": {"a": True}, "patternProperties": {"^[bx]": NUMBER}}),
    "patterns over listed names": ("a", {"properties": {"a": True}, "patternProperties": {"^a": NUMBER}}),
    "names": ("", {"propertyNames": {"enum": ["a", "x"]}}),
    "no listed name": ("a", {"properties": {"a": False}}),
    "counted": ("ab", {"properties": {"a": True, "b": True}, "minProperties": 2, "maxProperties": 2}),
    "counted, one must be there": (
        "ab",
        {"properties": {"a": True, "b": True}, "required": ["b"], "minProperties": 2},
    ),
    "few others": ("a", {"properties": {"a": True}, "maxProperties": 1}),
    "some property of a kind": ("", {"not": {"additionalProperties": NUMBER}}),
    "some listed or other property": (
        "ab",
        {"properties": {"a": True, "b": NUMBER}, "not": {"patternProperties": {"^[ax]": NUMBER}}},
    ),
}


def _in_order(members: dict[str, Any], listed: str, required: list[str]) -> bool:
    """Listed names in their order, and no others before the last one that must be there."""
    names = list(members)
    places = [listed.index(name) for name in names if name in listed]
    last = max((names.index(name) for name in required if name in names), default=0)
    return places == sorted(places) and all(name in listed for name in names[:last])


@pytest.mark.parametrize("name", SCHEMAS)
def test_objects_of_a_schema(name: str) -> None:
    listed, keywords = SCHEMAS[name]
    schema = {"type": "object", **keywords}
    emit, sets = emitter_of(schema)
    recognizer = recognizer_of(emit, choice([object_expr(emit, spec, "thing") for spec in sets.object]))
    assert recognizer is not None
    for members in OBJECTS:
        text = json.dumps(members, separators=(",", ":"))
        expected = is_valid(schema, members) and _in_order(members, listed, keywords.get("required", []))
        assert recognizer.matches(text) is expected, text


@pytest.mark.parametrize("name", SCHEMAS)
def test_objects_beside_a_memory(name: str) -> None:
    """Where names are remembered, any order of a valid object may be written, and nothing else."""
    schema = {"type": "object", **SCHEMAS[name][1]}
    emit, sets = emitter_of(schema, mode=Mode.IN_RULES)
    recognizer = recognizer_of(emit, choice([object_expr(emit, spec, "thing") for spec in sets.object]))
    assert recognizer is not None
    for members in OBJECTS:
        orders = (json.dumps(dict(order), separators=(",", ":")) for order in permutations(members.items()))
        assert any(map(recognizer.matches, orders)) is is_valid(schema, members), members


def test_a_listed_name_comes_once_in_any_spelling() -> None:
    emit, sets = emitter_of({"type": "object", "properties": {"é": NUMBER, "a": NUMBER}})
    recognizer = recognizer_of(emit, object_expr(emit, sets.object[0], "thing"))
    assert recognizer is not None
    assert recognizer.matches('{"\\u00e9":1,"a":2,"b":3}')
    for text in (
        '{"é":1,"\\u00e9":2}',
        '{"a":1,"\\u0061":2}',
        '{"é":1,"é":2}',
        '{"a":1,"é":2}',
        '{"b":3,"a":1,"b":2,"é":1}',
    ):
        assert not recognizer.matches(text), text


@pytest.mark.parametrize("required", list(product([False, True], repeat=3)))
@pytest.mark.parametrize("extra", [Literal("x"), NEVER])
def test_members_without_counts(required: tuple[bool, ...], extra: Expr) -> None:
    """Members a, b and c as one letter each, and any number of x after the last one that must be there."""
    rules = RuleBuilder()
    fields = [Field(Literal(name), needed, needed) for name, needed in zip("abc", required, strict=True)]
    shape = Shape(fields, extra, [], 0, 0, None)
    root = plain_members(rules, shape, "thing", comma=Literal(","))
    rules.fill(rules.reserve("root"), root)
    recognizer = Recognizer(rules.grammar("root"))
    needed = {name for name, must in zip("abc", required, strict=True) if must}
    for members in texts("abcx", 4):
        letters = members.replace("x", "")
        ordered = list(letters) == sorted(set(letters))
        early = "x" in members[: max((members.find(name) for name in needed), default=0)]
        expected = ordered and needed <= set(members) and not early and (extra != NEVER or "x" not in members)
        text = ",".join(members)
        assert recognizer.matches(text) is (expected and bool(members)), text


def test_many_optional_properties_cost_rules_in_proportion() -> None:
    for count in (50, 100):
        emit, sets = emitter_of({"type": "object", "properties": {f"p{n}": NUMBER for n in range(count)}})
        object_expr(emit, sets.object[0], "thing")
        assert len(emit.rules.rules) < 5 * count + 200


@pytest.mark.parametrize(
    "keywords",
    [
        {"properties": {f"p{n}": True for n in range(200)}, "maxProperties": 50},
        {"allOf": [{"not": {"additionalProperties": {"const": n}}} for n in range(5)]},
        {"patternProperties": {f"{c}": {"minimum": n} for n, c in enumerate("abcdefg")}},
    ],
)
def test_what_takes_too_many_rules_is_refused(keywords: dict[str, Any]) -> None:
    emit, sets = emitter_of({"type": "object", **keywords})
    with pytest.raises(GrammarTooComplex):
        object_expr(emit, sets.object[0], "thing")


def test_an_empty_object_has_a_space_where_text_is_flexible() -> None:
    emit, sets = emitter_of({"type": "object", "additionalProperties": False}, whitespace=Whitespace.FLEXIBLE)
    recognizer = recognizer_of(emit, object_expr(emit, sets.object[0], "thing"))
    assert recognizer is not None
    assert [text for text in ("{}", "{ }", "{\n}", "{  }") if recognizer.matches(text)] == [
        "{}",
        "{ }",
        "{\n}",
    ]
