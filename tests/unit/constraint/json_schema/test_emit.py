"""Values as rules: the shared ones of JSON itself, white space, and one rule for each part of a schema."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import NEVER, Expr
from jan_serve.core.constraint import Whitespace
from tests.unit.constraint.json_schema.emitting import emitter_of, recognizer_of
from tests.unit.constraint.json_schema.schemas import VALUES


def judge(schema: Any, whitespace: Whitespace = Whitespace.FLEXIBLE) -> Any:
    emit, sets = emitter_of(schema, whitespace=whitespace)
    recognizer = recognizer_of(emit, emit.alternatives(sets, "value"))
    assert recognizer is not None
    return recognizer


ANY, COMPACT = judge(True), judge(True, Whitespace.COMPACT)


@given(VALUES, st.booleans())
def test_what_json_dumps_writes_is_a_value(value: Any, ascii_only: bool) -> None:
    compact = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    for text in (
        compact,
        json.dumps(value, ensure_ascii=ascii_only),
        json.dumps(value, indent=4),
        json.dumps(value, indent="\t"),
    ):
        assert ANY.matches(text), text
        assert COMPACT.matches(text) is (text == compact), text


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30))
def test_a_number_is_a_value_where_a_double_keeps_its_digits(value: float) -> None:
    text = json.dumps(value)
    normal = value == 0 or 1e-308 <= abs(value) < 1e308
    assert ANY.matches(text) is normal


@given(st.text("0123456789.eE+-", max_size=9))
def test_a_text_that_is_taken_for_a_number_is_one(text: str) -> None:
    if ANY.matches(text):
        assert math.isfinite(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "01",
        "1.",
        ".5",
        "+1",
        "1e309",
        "9e308",
        "10e307",
        "NaN",
        "-",
        "[1,]",
        "{'a':1}",
        '"\n"',
        "",
        " 1",
        "1 ",
        "True",
    ],
)
def test_what_is_no_json_is_no_value(text: str) -> None:
    assert not ANY.matches(text)


def test_indentation_is_limited() -> None:
    assert ANY.matches("[\n" + " " * 32 + "1\n]")
    assert not ANY.matches("[\n" + " " * 33 + "1\n]")


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"enum": [True, None]}, ["true", "null"], ["false", "0"]),
        ({"const": False}, ["false"], ["true", "null"]),
        ({"type": "boolean"}, ["true", "false"], ["null"]),
        ({"type": "integer"}, ["0", "-7", "120"], ["1.0", "1e3", "-"]),
        ({"type": ["string", "number"]}, ['"a"', "1.5"], ["null", "[]"]),
        ({"type": "integer", "maximum": 9, "minimum": 8}, ["8", "9"], ["7", "10", "89"]),
    ],
)
def test_scalars(schema: Any, accepted: list[str], refused: list[str]) -> None:
    recognizer = judge(schema)
    assert [text for text in (*accepted, *refused) if recognizer.matches(text)] == accepted


def test_nothing_is_never() -> None:
    emit, sets = emitter_of({"type": "integer", "minimum": 2, "maximum": 1})
    assert emit.alternatives(sets, "value") == NEVER
    assert recognizer_of(emit, NEVER) is None


def test_equal_parts_share_a_rule() -> None:
    part = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(ab)+$"}}}
    emit, _ = emitter_of({"$defs": {"p": part}, "properties": {n: {"$ref": "#/$defs/p"} for n in "xyz"}})
    document = emit.expander.terms.document
    conj = emit.expander.terms.positive(document.child(document.root, "$defs", "p"))
    first: Expr = emit.value(conj, "first")
    assert emit.value(conj, "second") == first
    assert emit.shared("string") == emit.shared("string")


@pytest.mark.parametrize("depth", [0, 1, 200])
def test_a_recursive_schema_is_one_rule(depth: int) -> None:
    emit, _ = emitter_of({"type": "array", "items": {"$ref": "#"}})
    terms = emit.expander.terms
    grammar = emit.grammar(terms.positive(terms.document.root))
    assert len(grammar.rules) == 1
    recognizer = recognizer_of(emit, grammar.rules["root"])
    assert recognizer is not None
    assert recognizer.matches("[" * (depth + 1) + "]" * (depth + 1))
    assert not recognizer.matches("[" * (depth + 1) + "1" + "]" * (depth + 1))
