"""JSON Schema by example: which texts each keyword lets through, judged by our recognizer and by llguidance."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from jan_serve.constraint.lark.print_lark import print_lark, print_lark_open
from jan_serve.constraint.translation import Mode
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.grammars import grammar_alone, grammar_in_rules
from tests.unit.constraint.recognizer import Recognizer


class Case(NamedTuple):
    name: str
    schema: Any
    accept: tuple[Any, ...]
    reject: tuple[Any, ...]


OBJECT = {"type": "object"}
WHOLE = {"i": {"type": "integer"}}
OLDER: tuple[tuple[str, int, Any, tuple[Any, ...], tuple[Any, ...]], ...] = (
    (
        "draft 7 beside $ref",
        7,
        {"$ref": "#/definitions/i", "minimum": 5, "definitions": WHOLE},
        (3, 7),
        ("x",),
    ),
    ("draft 4 has no const", 4, {"type": "integer", "const": 1, "minimum": 0}, (1, 2), (-1,)),
    ("draft 6 has no if", 6, {"type": "integer", "if": {}, "then": False}, (1,), ("x",)),
    (
        "draft 7 has no minContains",
        7,
        {"contains": {"const": 1}, "minContains": 0},
        ([1], 2),
        ([], [2]),
    ),
    ("draft 7 has no prefixItems", 7, {"type": "array", "prefixItems": [False]}, ([1],), (1,)),
    (
        "draft 7 not over a new keyword",
        7,
        {"not": {"dependentRequired": {"a": ["b"]}, "type": "null"}},
        (1,),
        (None,),
    ),
)
CASES = (
    Case("true", True, (None, 1, "x", [], {"a": [1]}), ()),
    Case(
        "bounds that no text reaches",
        {"maxItems": 2**53, "maxLength": 2**64, "maxProperties": 2**53 - 1, "not": {"maxLength": 2}},
        ("abc",),
        ("ab", [], {}),
    ),
    Case(
        "enum",
        {"enum": ["a", 1, None, {"k": [1]}, False]},
        ("a", 1, None, {"k": [1]}, False),
        ("b", 0, True, {}),
    ),
    Case("const string", {"const": 'q"\\\né'}, ('q"\\\né',), ("q",)),
    Case("const float", {"const": 1.5}, (1.5,), (1, 1.25, 15)),
    Case("const zero", {"const": 0}, (0,), (1, False, None)),
    Case("draft 4 exclusive", {"minimum": 3, "exclusiveMinimum": True, "type": "integer"}, (4,), (3, 2)),
    Case("bound below zero", {"type": "number", "maximum": -0.25}, (-0.25, -1, -3.5), (0, -0.2, 1)),
    Case("multipleOf", {"type": "integer", "multipleOf": 7}, (0, 7, -21, 700), (1, 8, -20)),
    Case("pattern searches", {"type": "string", "pattern": "b|^c"}, ("abc", "cx"), ("a", "ac")),
    Case("length", {"type": "string", "minLength": 2, "maxLength": 3}, ("ab", "éé", '\n"x'), ("a", "abcd")),
    Case("astral length", {"type": "string", "maxLength": 1}, ("😀", ""), ("😀😀",)),
    Case("date", {"format": "date", "type": "string"}, ("2024-02-29",), ("2023-02-29", "2024-1-1", "x")),
    Case("unknown format", {"type": "string", "format": "no-such"}, ("anything",), (1,)),
    Case(
        "base64", {"type": "string", "contentEncoding": "base64"}, ("", "YQ==", "YWJj"), ("Y", "YQ=", "a b=")
    ),
    Case(
        "tuple of older drafts",
        {"items": [{"type": "null"}], "additionalItems": {"type": "integer"}},
        ([None, 1],),
        ([None, "a"],),
    ),
    Case(
        "recursion",
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": {
                    "properties": {"c": {"items": {"$ref": "#/$defs/n"}, "type": "array"}},
                    "additionalProperties": False,
                    **OBJECT,
                }
            },
        },
        ({}, {"c": []}, {"c": [{}, {"c": [{}]}]}),
        ({"d": 1}, {"c": [1]}, {"c": [{"c": {}}]}),
    ),
    Case(
        "alternatives whose parts lead back",
        {
            "$ref": "#/$defs/n",
            "$defs": {
                "n": {
                    "oneOf": [
                        {"type": "string"},
                        {"properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], **OBJECT},
                        {"properties": {"a": {"type": "integer"}}, "required": ["a"], **OBJECT},
                    ]
                }
            },
        },
        ("x", {"a": "x"}, {"a": {"a": "x"}}, {"a": 1}),
        ({"a": None}, {"a": {"a": None}}, 1, {}),
    ),
    Case(
        "siblings of $ref",
        {"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string"}}},
        ("ab",),
        ("abc", 1),
    ),
    Case("anchor", {"$ref": "#s", "$defs": {"x": {"$anchor": "s", "type": "string"}}}, ("a",), (1,)),
    Case(
        "impossible branch",
        {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3, "maximum": 2}]},
        ("a",),
        (2, 3),
    ),
    Case(
        "endless branch",
        {
            "anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}],
            "$defs": {"n": {"required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}, **OBJECT}},
        },
        (None,),
        ({"n": 1}, {}),
    ),
    Case("large bound", {"type": "string", "maxLength": 20000}, ("", "a" * 5000), (1,)),
    *(
        Case(name, {"$schema": f"http://json-schema.org/draft-0{draft}/schema#", **schema}, accept, reject)
        for name, draft, schema, accept, reject in OLDER
    ),
    Case(
        "2020-12 has no dependencies",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "dependencies": {"a": ["b"]},
            "type": "object",
        },
        ({"a": 1},),
        (1,),
    ),
    Case(
        "hostname",
        {"format": "hostname", "type": "string"},
        ("a--b", "xn", "x.y"),
        ("xn--X", "a.XN--b", "-a"),
    ),
    Case(
        "uri-template",
        {"format": "uri-template", "type": "string"},
        ("{a}/é",),
        ("\x7f", "\x85", "\ufdd0", "\uffff", "\U0001ffff"),
    ),
    Case(
        "leap second",
        {"format": "date-time", "type": "string"},
        ("1998-12-31T23:59:60Z", "2024-02-29T10:00:00Z"),
        ("1998-12-30T23:59:60Z", "1998-12-31T23:58:60Z"),
    ),
    Case("large maximum", {"type": "number", "maximum": 1e308}, (1, -5e300, 1e308, 10**77), (10**308 + 1,)),
    Case("number of a double", {"type": "number"}, (9e307, 1e22, 1e-308), ("1e22",)),
    Case(
        "largest uint256", {"type": "integer", "minimum": 0, "maximum": 2**256 - 1}, (2**256 - 1,), (2**256,)
    ),
    Case("if without then", {"if": {"type": "string"}, "else": {"type": "null"}}, ("a", None), (1,)),
    Case(
        "a property that brings a schema",
        {"type": "object", "dependentSchemas": {"a": {"maxProperties": 1}}},
        ({"a": 1}, {"b": 1, "c": 1}),
        ({"a": 1, "b": 1},),
    ),
    Case(
        "both in the older spelling",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {name: {} for name in "abcd"},
            "dependencies": {"a": ["b"], "c": {"required": ["d"]}},
        },
        ({"a": 1, "b": 1}, {"c": 1, "d": 1}, 1),
        ({"a": 1}, {"c": 1}),
    ),
    Case("equal numbers in an enumeration", {"enum": [1, "a", [True]]}, (1, "a", [True]), (True, [1])),
    Case(
        "draft 4: one that does not",
        {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 1, "exclusiveMaximum": False},
        (1,),
        (2,),
    ),
    Case(
        "draft 3: a property says that it is required",
        {"$schema": "http://json-schema.org/draft-03/schema#", "required": True, "type": "object"},
        ({}, {"a": 1}),
        (1,),
    ),
    Case("integral floats count", {"minLength": 2.0, "type": "string"}, ("ab",), ("a",)),
    Case(
        "equal bounds of which one excludes itself",
        {
            "type": "integer",
            "minimum": 1,
            "allOf": [{"exclusiveMinimum": 1, "exclusiveMaximum": 3}, {"maximum": 3}],
        },
        (2,),
        (1, 3),
    ),
    Case("1 is not true", {"allOf": [{"const": 1}, {"not": {"const": True}}]}, (1,), (True,)),
    Case(
        "a property that is not true",
        {
            "properties": {"a": {"const": 1}},
            "not": {"required": ["a"], "properties": {"a": {"const": True}}},
            **OBJECT,
        },
        ({"a": 1}, {}),
        ({"a": True},),
    ),
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
    before: str,
    schema: Any,
    after: str,
    value: str,
    spelled: list[str],
    others: list[str],
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
