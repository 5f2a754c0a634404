"""Properties in any order: every order of the members of a valid object is taken, and nothing else. All objects over a
few names are tried in all orders, by the grammar and memory that the engine runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import jsonschema
import pytest

from jan_serve.constraint import ast
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder
from jan_serve.core.uniqueness import Uniqueness
from tests.conformance.uniqueness_oracle import UniquenessOracle
from tests.support.tables import table

INTEGER: Final = {"type": "integer"}
CLOSED: Final = {"additionalProperties": False}
ORACLE: Final = UniquenessOracle()
LAYOUTS: Final[list[dict[str, Any]]] = [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": "\t"}]


def listed(names: str, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, INTEGER), **keywords}


SCHEMAS: dict[str, dict[str, Any]] = table(__file__, "schemas")
VALUES: dict[str, list[Any]] = {
    "closed": [1],
    "others of a kind": [1, None],
    "by a mark": [1, "x", None],
    "one of open ones": [{"x": 1, "z": 1}, {"x": 1, "y": 2}, {"y": 1, "z": 1, "q": 0}, {"w": 1}, 1],
    "within": [1, {"y": 2, "x": 1}, {"x": 1}, [{"x": 1}, {"y": 1, "x": 0}]],
    "itself": [1, {"x": 1}, {"a": {"x": 2}, "x": 1}],
}


def objects(values: list[Any], random: Random) -> Iterator[dict[str, Any]]:
    """All orders of all sets of names; where values differ, each several times."""
    for count in range(5):
        for names in itertools.permutations("abcdx", count):
            for _ in range(1 if len(values) == 1 else 2 ** (4 - count)):
                yield {name: random.choice(values) for name in names}


@pytest.mark.parametrize("name", SCHEMAS)
def test_all_orders_of_valid_objects_are_taken_and_nothing_else(name: str) -> None:
    schema = SCHEMAS[name]
    constraint = JsonSchemaConstraint(schema, property_order=PropertyOrder.ANY)
    compiled = enforce(constraint).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    random = Random(name)
    validator: Any = jsonschema.Draft202012Validator(schema)
    outcomes = set[bool]()
    for members in objects(VALUES.get(name, [1]), random):
        valid = validator.is_valid(members)
        outcomes.add(valid)
        text = json.dumps(members, **random.choice(LAYOUTS))
        assert ORACLE.accepts(matcher, text) is valid, text
        if members:
            first = next(iter(members))
            assert not ORACLE.accepts(
                matcher, f'{json.dumps(members)[:-1]}, "{first}": {json.dumps(members[first])}}}'
            )
    assert outcomes == {True, False} or name in ("open, nothing required", "one listed")


@pytest.mark.parametrize("count", [45, 46, 130])
@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("bounds", [{}, {"minProperties": 3, "maxProperties": 40}])
def test_many_names_come_in_any_order(count: int, others: bool, bounds: dict[str, int]) -> None:
    names = [f"n{number:03}" for number in range(count)]
    required = [names[1], names[-2]]
    schema = {
        "type": "object",
        "properties": dict.fromkeys(names, INTEGER),
        "required": required,
        "additionalProperties": others,
        **bounds,
    }
    compiled = enforce(JsonSchemaConstraint(schema, property_order=PropertyOrder.ANY)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    random = Random(count)
    for size in (0, 1, 2, 5, 37, 38, 39, count - 2):
        optional = [name for name in names if name not in required]
        chosen = [*required, *random.sample(optional, min(size, len(optional)))]
        if others:
            chosen.append("other")
        random.shuffle(chosen)
        least, most = bounds.get("minProperties", 0), bounds.get("maxProperties", count + 1)
        valid = least <= len(chosen) <= most
        assert ORACLE.accepts(matcher, json.dumps(dict.fromkeys(chosen, 1))) is valid
        missing = json.dumps({name: 1 for name in chosen if name != required[-1]})
        assert not ORACLE.accepts(matcher, missing)


def test_others_of_several_objects_stay_apart() -> None:
    def member(name: str, value: str) -> ast.Expr:
        return ast.Sequence((ast.Literal(f'"{name}"'), ast.Mark(":"), ast.Literal(value)))

    comma = ast.Mark(",")
    objects = [
        ast.Unordered((member("a", str(number)),), (True,), comma, member(f"x{number}", "0"))
        for number in range(9)
    ]
    root = ast.OneLayout(ast.Choice(tuple(ast.Brackets("{", members, "}") for members in objects)))
    matcher = ORACLE.compile(print_lark(ast.Grammar({"root": root})), Uniqueness())
    for number, other in itertools.product(range(9), range(9)):
        for members in ({"a": number, f"x{other}": 0}, {f"x{other}": 0, "a": number}):
            for layout in LAYOUTS:
                text = json.dumps(members, **layout)
                assert ORACLE.accepts(matcher, text) is (number == other), text


@pytest.mark.parametrize("seed", range(25))
def test_random_unions_of_open_objects(seed: int) -> None:
    random = Random(seed)

    def drawn(depth: int) -> dict[str, Any]:
        names = random.sample("abcd", random.randint(1, 3))
        inner = [drawn(depth - 1) if depth and random.random() < 0.6 else {"type": "string"} for _ in names]
        required = [name for name in names if random.random() < 0.6]
        return {"type": "object", "properties": dict(zip(names, inner, strict=True)), "required": required}

    def value(depth: int) -> Any:
        if not depth or random.random() < 0.3:
            return random.choice(["s", 1])
        names = random.sample("abcdx", random.randint(1, 4))
        return {name: value(depth - 1) for name in names}

    schema = {"type": "object", "oneOf": [drawn(2), drawn(2)]}
    compiled = enforce(JsonSchemaConstraint(schema, property_order=PropertyOrder.ANY)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    validator: Any = jsonschema.Draft202012Validator(schema)
    for _ in range(150):
        members = {name: value(2) for name in random.sample("abcdx", random.randint(0, 4))}
        text = json.dumps(members, **random.choice(LAYOUTS))
        assert ORACLE.accepts(matcher, text) is validator.is_valid(members), text


def test_the_order_of_a_schema_is_kept_unless_any_is_asked_for() -> None:
    for order, expected in ((None, False), (PropertyOrder.SCHEMA, False), (PropertyOrder.ANY, True)):
        compiled = enforce(JsonSchemaConstraint(listed("abc"), property_order=order)).compiled
        assert compiled.uniqueness is not None
        matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
        assert ORACLE.accepts(matcher, '{"a": 1, "x": 1, "c": 1}')
        assert ORACLE.accepts(matcher, '{"c": 1, "a": 1}') is expected


@pytest.mark.parametrize("name", SCHEMAS)
def test_in_the_order_of_the_listed_ones_others_come_last(name: str) -> None:
    schema = SCHEMAS[name]
    compiled = enforce(JsonSchemaConstraint(schema, property_order=PropertyOrder.LISTED)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    validator: Any = jsonschema.Draft202012Validator(schema)
    # Counts have any order, conditions that of the schema; the others have open objects or names in more places.
    elsewhere = name in ("required and not listed", "within", "with a condition", "one of open ones")
    is_counted = elsewhere or {"minProperties", "maxProperties"} & schema.keys()
    known = schema.get("properties", {}).keys()
    for members in objects(VALUES.get(name, [1]), Random(name)):
        taken = ORACLE.accepts(matcher, json.dumps(members))
        valid = validator.is_valid(members)
        assert valid or not taken, members
        if members and not is_counted and sorted(members, key=lambda each: each not in known) == [*members]:
            assert taken is valid, members


def test_a_name_of_its_own_does_not_keep_a_model_from_the_required_ones() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    compiled = enforce(JsonSchemaConstraint(schema, property_order=PropertyOrder.LISTED)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    assert ORACLE.accepts(matcher, '{"b": 1, "a": 1, "x": 1, "y": 1}')
    assert not ORACLE.accepts(matcher, '{"x": 1, "b": 1, "a": 1}')
    assert not ORACLE.accepts(matcher, '{"b": 1, "x": 1, "a": 1}')


def test_gbnf_has_the_order_of_the_schema() -> None:
    texts = {
        enforce(JsonSchemaConstraint(listed("abc", required=["a"], **CLOSED), property_order=order)).gbnf()
        for order in PropertyOrder
    }
    one, other = ([line for line in text.splitlines() if "any order" not in line] for text in texts)
    assert one == other
    assert len(texts) == 2
