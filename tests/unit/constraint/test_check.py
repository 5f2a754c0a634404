"""Where a text leaves what the engine runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.constraint.check import leaves_at
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.core.constraint import GbnfConstraint, JsonSchemaConstraint, RegexConstraint, Whitespace
from tests.unit.constraint.json_schema.test_translate import CASES, Case
from tests.unit.constraint.recognizer import Recognizer

OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}
TAGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


@pytest.mark.parametrize(
    ("schema", "text", "at"),
    [
        (OPEN, '{"a": 1}', None),
        (OPEN, '{"b": 1, "a": 2}', None),
        (OPEN, '{"a": 1, "a": 2}', 11),
        (OPEN, '{"a": 1', 7),
        (OPEN, '{"a": "é"}', 6),
        (OPEN, '{"é": 1, "é": 2}', 11),
        (OPEN, '{\n  "a": 1\n}', None),
        (OPEN, '{\n  "a":1\n}', 8),
        (OPEN, '{"a": 1} ', 8),
        (TAGS, '["x", "y"]', None),
        (TAGS, '["x", "x"]', 8),
        (TAGS, '["x", "y', 8),
        ({"type": "string", "pattern": "^[a-c]*$"}, '"abd"', 3),
        ({"type": "string", "pattern": "^[a-c]*$"}, '"\\u0061"', 1),
    ],
)
def test_a_text_leaves_a_schema_where_the_engine_would_stop_it(
    schema: Any, text: str, at: int | None
) -> None:
    assert leaves_at(enforce(JsonSchemaConstraint(schema)), text) == at


def test_expressions_and_gbnf_are_followed_too() -> None:
    assert leaves_at(enforce(RegexConstraint("[a-cé]{2}")), "éa") is None
    assert leaves_at(enforce(RegexConstraint("[a-cé]{2}")), "éaa") == 2
    assert leaves_at(enforce(GbnfConstraint('root ::= "a" "b"*')), "abbc") == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_text_leaves_the_printed_gbnf_where_it_leaves_what_runs(case: Case) -> None:
    """Unless only the comparison of items beside it stops the text."""
    found = enforce(JsonSchemaConstraint(case.schema, Whitespace.COMPACT))
    printed = Recognizer(parse_gbnf(found.gbnf()))
    for value in (*case.accept, *case.reject):
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        at = leaves_at(found, text)
        assert at == printed.leaves_at(text) or (found.cost.unique_arrays and at is not None)
