"""JSON Schema by example: which texts each keyword lets through, judged by our recognizer and by llguidance."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from jan_serve.constraint.ast import Mode
from jan_serve.constraint.lark.print_lark import print_lark, print_lark_open
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone, grammar_in_rules
from tests.unit.constraint.recognizer import Recognizer


class Case(NamedTuple):
    name: str
    schema: Any
    accept: list[Any]
    reject: list[Any]


CASES = (
    *(Case(*row) for row in table(__file__, "cases")),
    Case("large bound", {"type": "string", "maxLength": 20000}, ["", "a" * 5000], [1]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_texts_of_a_schema(case: Case) -> None:
    grammar = grammar_alone(case.schema)
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for expected, values in ((True, case.accept), (False, case.reject)):
        for value in values:
            for text in (
                json.dumps(value),
                json.dumps(value, ensure_ascii=False),
                json.dumps(value, separators=(",", ":")),
                json.dumps(value, indent=2),
            ):
                assert recognizer.matches(text) is expected, text
                assert oracle.accepts(matcher, text) is expected, text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "minProperties": 2},
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "minProperties": 3},
        {"type": "object", "not": {"additionalProperties": {"type": "number"}}},
        {"type": "array", "items": {"type": "object", "patternProperties": {"^x": {}}, "minProperties": 2}},
    ],
)
def test_what_needs_different_names_is_refused_without_a_memory(schema: Any) -> None:
    """`{"x": 1, "x": 2}` is read as one property."""
    with pytest.raises(UnsupportedSchema, match=r"where (names|they) may repeat"):
        grammar_alone(schema)
    _, memory = grammar_in_rules(schema)
    assert memory.names_repeat


def test_listed_properties_come_in_their_order_and_once() -> None:
    recognizer = Recognizer(grammar_alone({"type": "object", "properties": {"b": {}, "a": {}}}))
    assert recognizer.matches('{"b": 1, "a": 2, "c": 3}')
    assert recognizer.matches('{"d": 0, "b": 1, "c": 2, "a": 3}')
    for text in (
        '{"a": 1, "b": 2}',
        '{"a": 1, "c": 0, "b": 2}',
        '{"a": 1, "a": 2}',
        '{"a": 1, "\\u0061": 2}',
    ):
        assert not recognizer.matches(text), text


@pytest.mark.parametrize(
    ("value", "spelled", "others"),
    [
        ("a", ['"a"'], ['"\\u0061"']),
        ("a/b", ['"a/b"'], ['"a\\/b"', '"a\\u002fb"']),
        ("\n", ['"\\n"'], ['"\n"', '"\\u000a"']),
        ('"\\', ['"\\"\\\\"'], ['"\\u0022\\u005c"', '""\\"']),
        ("\x01", ['"\\u0001"'], ['"\x01"', '"\\u0002"']),
        ("é", ['"é"', '"\\u00e9"', '"\\u00E9"'], ['"e"', '"\\u00e8"']),
        ("😀", ['"😀"', '"\\ud83d\\ude00"', '"\\uD83D\\uDE00"'], ['"\\ud83d"', '"\\ude00\\ud83d"']),
    ],
)
@pytest.mark.parametrize(
    ("before", "schema", "after"),
    [
        ("", {"const": "VALUE"}, ""),
        ("", {"enum": [1, "VALUE", "other"]}, ""),
        ('{"k": ', {"const": {"k": "VALUE"}}, "}"),
        ("[", {"enum": [["VALUE"], []]}, "]"),
    ],
    ids=["const", "enum", "object", "array"],
)
def test_listed_values_have_only_the_escapes_that_they_need(
    before: str, schema: Any, after: str, value: str, spelled: list[str], others: list[str]
) -> None:
    """Characters beyond printable ASCII also as `\\u…`: a model that writes ASCII only needs it."""
    written = json.dumps(schema).replace('"VALUE"', json.dumps(value))
    grammar = grammar_alone(json.loads(written))
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for text, is_taken in (*((text, True) for text in spelled), *((text, False) for text in others)):
        assert recognizer.matches(before + text + after) is is_taken, text
        assert oracle.accepts(matcher, before + text + after) is is_taken, text


@pytest.mark.parametrize(
    "text",
    ['"\\ud83d"', '"\\ude00\\ud83d"', '"\t"', '"\\x"', '"', "'a'", '"a" ', "01", "1.", "+1", "NaN", "[1,]"],
)
def test_nothing_that_is_not_json_is_a_value(text: str) -> None:
    assert not Recognizer(grammar_alone(True)).matches(text)


LEFT_OUT: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "any other name": (
        {"properties": {"type": {"const": 1}, "types": {"const": 2}, 'é"': {"const": 3}}},
        ["typ", "typed", "typesx", "t", "x", "é", 'é"é', "\n", ""],
        ["type", "types", 'é"'],
    ),
    "names of a pattern": (
        {
            "properties": {"x-a": {"const": 1}},
            "patternProperties": {"^x-": {"const": 4}},
            "additionalProperties": False,
        },
        ["x-", "x-ab", "x-b"],
        ["x-a", "y"],
    ),
    "few of which begin alike": (
        {"properties": {"ab": {"const": 1}}, "propertyNames": {"pattern": "^(ab|x.*)$"}},
        ["x", "xab"],
        ["ab", "a"],
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_terminals_leave_out_the_same_names_as_rules(name: str) -> None:
    schema, others, not_others = LEFT_OUT[name]
    found, _ = grammar_in_rules(schema, mode=Mode.ENFORCED)
    text = print_lark(found)
    assert "~" in text
    oracle = LlguidanceOracle()
    terminals = oracle.compile(text)
    recognizer = Recognizer(grammar_in_rules(schema)[0])
    for is_other in (True, False):
        for key in others if is_other else not_others:
            document = json.dumps({key: 4}, ensure_ascii=False)
            assert oracle.accepts(terminals, document) is is_other, document
            assert recognizer.matches(document) is is_other, document


def test_rules_know_no_complement() -> None:
    found, _ = grammar_in_rules({"properties": {"a": {}}}, mode=Mode.ENFORCED)
    with pytest.raises(GrammarTooComplex):
        print_lark_open(found, terminals=False)
