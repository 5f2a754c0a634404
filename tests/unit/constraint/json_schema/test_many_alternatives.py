"""Many alternatives that the value of one property tells apart."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import jsonschema
import pytest

from jan_serve.constraint.limits import MAX_STEPS, spent
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import matches


def alternative(kind: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": kind, **properties}, "required": ["kind", *properties]}


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_hundreds_of_them_are_enforced(keyword: str) -> None:
    kinds = [alternative({"const": f"k{n}"}, v={"type": "integer", "minimum": n}) for n in range(250)]
    grammar = grammar_alone({keyword: kinds})
    assert spent() < MAX_STEPS
    assert matches(grammar, '{"kind": "k0", "v": 0}')
    assert matches(grammar, '{"kind": "k249", "v": 249}')
    assert not matches(grammar, '{"kind": "k249", "v": 248}')
    assert not matches(grammar, '{"kind": "k250", "v": 250}')


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
@pytest.mark.parametrize(
    "extra",
    [
        alternative({"enum": ["k1", "k2"]}, v={"type": "integer"}),
        alternative({"const": "k1"}, v={"type": "integer", "maximum": 3}),
        alternative({"type": "string"}, v={"type": "boolean"}),
        {"type": "object", "properties": {"kind": {"const": "k2"}}},
        {"type": "string"},
        False,
    ],
    ids=["two of them", "one of them", "any", "not required", "another type", "nothing"],
)
def test_some_of_them_may_overlap(keyword: str, extra: Any) -> None:
    kinds: list[Any] = [alternative({"enum": [f"k{n}"]}, v={"type": "integer"}) for n in range(10)]
    schema = {keyword: [*kinds, extra]}
    grammar = grammar_alone(schema)
    validator: Any = jsonschema.Draft202012Validator(schema)
    values = [{"kind": kind, "v": v} for kind, v in product(("k0", "k1", "k2", "x"), (1, 4, True, "a"))]
    for value in [*values, {"kind": "k2"}, {}, "text", 5]:
        assert matches(grammar, json.dumps(value)) is validator.is_valid(value), value


def test_what_tells_them_apart_may_be_optional_and_listed_beside_them() -> None:
    kinds = [{"properties": {"kind": {"pattern": f"^k{n}@"}, "v": {"const": n}}} for n in range(240)]
    among = {"type": "object", "properties": {"kind": {"type": "string"}}, "anyOf": kinds}
    grammar = grammar_alone({"anyOf": [among, {"type": "object", "required": ["none"]}]})
    assert spent() < MAX_STEPS / 2
    assert matches(grammar, '{"kind": "k7@x", "v": 7}')
    assert not matches(grammar, '{"kind": "k7@x", "v": 6}')
    assert not matches(grammar, '{"kind": "k240@", "v": 240}')
