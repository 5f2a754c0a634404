"""JSON Schema by example: which texts each keyword lets through, judged by our recognizer and by llguidance."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from jan_serve.constraint.print_lark import print_lark, print_lark_open
from jan_serve.constraint.translation import Mode
from jan_serve.core.constraint import Whitespace
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
    Case("type", {"type": "integer"}, (0, -7, 10**20), (1.5, "1", None, True)),
    Case(
        "bounds that no text reaches",
        {"maxItems": 2**53, "maxLength": 2**64, "maxProperties": 2**53 - 1, "not": {"maxLength": 2}},
        ("abc",),
        ("ab", [], {}),
    ),
    Case("types", {"type": ["string", "null"]}, ("", None), (0, [])),
    Case("number", {"type": "number"}, (0, -1.5, 1e-07, 1e22, 1.5e300), ("1", None)),
    Case(
        "enum",
        {"enum": ["a", 1, None, {"k": [1]}, False]},
        ("a", 1, None, {"k": [1]}, False),
        ("b", 0, True, {}),
    ),
    Case("const string", {"const": 'q"\\\né'}, ('q"\\\né',), ("q",)),
    Case("const float", {"const": 1.5}, (1.5,), (1, 1.25, 15)),
    Case("const zero", {"const": 0}, (0,), (1, False, None)),
    Case("minimum", {"type": "integer", "minimum": 17}, (17, 20, 99, 100, 12345), (16, 0, -20, 9)),
    Case(
        "bounds", {"type": "integer", "minimum": -12, "maximum": 105}, (-12, -1, 0, 105, 99), (-13, 106, 1000)
    ),
    Case(
        "exclusive",
        {"type": "number", "exclusiveMinimum": 0, "maximum": 2.5},
        (0.1, 2.5, 1e-05, 2),
        (0, -1, 2.51, 3),
    ),
    Case("draft 4 exclusive", {"minimum": 3, "exclusiveMinimum": True, "type": "integer"}, (4,), (3, 2)),
    Case("bound below zero", {"type": "number", "maximum": -0.25}, (-0.25, -1, -3.5), (0, -0.2, 1)),
    Case("multipleOf", {"type": "integer", "multipleOf": 7}, (0, 7, -21, 700), (1, 8, -20)),
    Case(
        "decimal multipleOf", {"type": "number", "multipleOf": 0.25}, (0.25, 1, 1.5, -2.75), (0.1, 1.3, 0.255)
    ),
    Case("pattern", {"type": "string", "pattern": "^a+$"}, ("a", "aaa"), ("", "b", "ab")),
    Case("pattern searches", {"type": "string", "pattern": "b|^c"}, ("abc", "cx"), ("a", "ac")),
    Case("length", {"type": "string", "minLength": 2, "maxLength": 3}, ("ab", "éé", '\n"x'), ("a", "abcd")),
    Case("astral length", {"type": "string", "maxLength": 1}, ("😀", ""), ("😀😀",)),
    Case(
        "pattern and length",
        {"pattern": "^[ab]+c$", "maxLength": 3, "type": "string"},
        ("ac", "abc"),
        ("aabc", "c"),
    ),
    Case("not pattern", {"type": "string", "not": {"pattern": "x"}}, ("", "abc"), ("x", "axb")),
    Case("not enum", {"type": "string", "not": {"enum": ["a", "ab"]}}, ("", "b", "abc"), ("a", "ab")),
    Case("date", {"format": "date", "type": "string"}, ("2024-02-29",), ("2023-02-29", "2024-1-1", "x")),
    Case(
        "regex format",
        {"type": "string", "format": "regex"},
        ("^a+$", "[a-z0-9_-]+", "(?:x(y|z){2,3})*", "\\d{3}-?", ""),
        ("[", "*", "a{2,1}", "[z-a]", "(a", "a**", "\\"),
    ),
    Case("unknown format", {"type": "string", "format": "no-such"}, ("anything",), (1,)),
    Case(
        "base64", {"type": "string", "contentEncoding": "base64"}, ("", "YQ==", "YWJj"), ("Y", "YQ=", "a b=")
    ),
    Case(
        "properties",
        {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"], **OBJECT},
        ({"b": 1}, {"a": "x", "b": 1}, {"b": 1, "c": None}, {"b": 1, "ab": 1, "": 2}),
        ({}, {"a": 1, "b": 1}, {"a": "x"}, {"b": "1"}),
    ),
    Case(
        "closed",
        {"properties": {"a": {}}, "additionalProperties": False},
        ({}, {"a": 1}),
        ({"b": 1}, {"a": 1, "aa": 2}),
    ),
    Case(
        "additional",
        {"additionalProperties": {"type": "null"}},
        ({}, {"x": None}, {"x": None, "y": None}),
        ({"x": 1},),
    ),
    Case(
        "patternProperties",
        {
            "patternProperties": {"^n": {"type": "integer"}, "s$": {"type": "string"}},
            "additionalProperties": False,
        },
        ({"n": 1}, {"xs": "t"}, {"n1": 2, "s": "t"}),
        ({"n": "t"}, {"xs": 1}, {"ns": 1}, {"q": 1}),
    ),
    Case(
        "propertyNames",
        {"propertyNames": {"pattern": "^[a-z]+$"}, **OBJECT},
        ({}, {"ab": 1}),
        ({"A": 1}, {"": 1}),
    ),
    Case(
        "minProperties",
        {"minProperties": 2, "properties": {"a": {}, "b": {}}, "additionalProperties": False, **OBJECT},
        ({"a": 1, "b": 2},),
        ({}, {"a": 1}),
    ),
    Case(
        "maxProperties",
        {"maxProperties": 1, "properties": {"a": {}, "b": {}}, **OBJECT},
        ({}, {"b": 1}),
        ({"a": 1, "b": 1},),
    ),
    Case(
        "dependentRequired",
        {"dependentRequired": {"a": ["b"]}, "properties": {"a": {}, "b": {}}},
        ({}, {"b": 1}, {"a": 1, "b": 2}),
        ({"a": 1},),
    ),
    Case("items", {"items": {"type": "integer"}, "type": "array"}, ([], [1], [1, 2]), (["a"], [1, None])),
    Case("item counts", {"type": "array", "minItems": 1, "maxItems": 2}, ([1], [1, "a"]), ([], [1, 2, 3])),
    Case(
        "prefixItems",
        {"prefixItems": [{"type": "null"}, {"type": "integer"}], "items": False},
        ([], [None], [None, 1]),
        ([1], [None, 1, 2]),
    ),
    Case(
        "tuple of older drafts",
        {"items": [{"type": "null"}], "additionalItems": {"type": "integer"}},
        ([None, 1],),
        ([None, "a"],),
    ),
    Case("contains", {"contains": {"const": 1}, "type": "array"}, ([1], [2, 1, 3]), ([], [2])),
    Case(
        "contains bounds",
        {"contains": {"const": 1}, "minContains": 1, "maxContains": 2, "type": "array"},
        ([1, 0, 1],),
        ([0], [1, 1, 1]),
    ),
    Case(
        "uniqueItems",
        {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True},
        ([], ["b", "a"], [1, "a", "b"]),
        (["a", "a"], ["c"]),
    ),
    Case(
        "allOf", {"allOf": [{"minLength": 2}, {"maxLength": 2}, {"type": "string"}]}, ("ab",), ("a", "abc", 1)
    ),
    Case(
        "anyOf", {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, (1, "a"), ("ab", None)
    ),
    Case(
        "oneOf overlapping",
        {"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]},
        (1, 2.5),
        (3, 1.5),
    ),
    Case(
        "oneOf required",
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], **OBJECT},
        ({"a": 1}, {"b": 1}),
        ({}, {"a": 1, "b": 1}),
    ),
    Case("not type", {"not": {"type": ["object", "array", "number"]}}, ("a", None, True), (1, [], {})),
    Case(
        "not required", {"not": {"required": ["a"]}, **OBJECT}, ({}, {"b": 1}), ({"a": 1}, {"b": 1, "a": 2})
    ),
    Case(
        "if then else",
        {
            "properties": {"k": {"enum": ["n", "s"]}, "v": {}},
            "required": ["k", "v"],
            "if": {"properties": {"k": {"const": "n"}}},
            "then": {"properties": {"v": {"type": "integer"}}},
            "else": {"properties": {"v": {"type": "string"}}},
            **OBJECT,
        },
        ({"k": "n", "v": 1}, {"k": "s", "v": "x"}),
        ({"k": "n", "v": "x"}, {"k": "s", "v": 1}),
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
        "unevaluatedProperties",
        {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False, **OBJECT},
        ({}, {"a": 1}),
        ({"b": 1},),
    ),
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
    Case(
        "an object within itself",
        {"type": "object", "properties": {"name": {}, "next": {"$ref": "#"}}, "required": ["name"]},
        ({"name": 1, "next": {"name": [], "next": {"name": {}}}},),
        ({"name": 1, "next": {}}, {}),
    ),
    Case("number of a double", {"type": "number"}, (9e307, 1e22, 1e-308), ("1e22",)),
    Case(
        "largest uint256", {"type": "integer", "minimum": 0, "maximum": 2**256 - 1}, (2**256 - 1,), (2**256,)
    ),
    Case(
        "one of two that overlap", {"oneOf": [{"type": "integer"}, {"minimum": 3}]}, (1, 3.5, "x"), (4, 2.5)
    ),
    Case("if without then", {"if": {"type": "string"}, "else": {"type": "null"}}, ("a", None), (1,)),
    Case(
        "a property that brings another",
        {"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}, **OBJECT},
        ({}, {"b": 1}, {"a": 1, "b": 1}),
        ({"a": 1},),
    ),
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
    Case("names", {"propertyNames": {"maxLength": 1}}, ({"a": 1}, {}), ({"ab": 1},)),
    Case("equal numbers in an enumeration", {"enum": [1, "a", [True]]}, (1, "a", [True]), (True, [1])),
    Case(
        "draft 4: a bound that excludes itself",
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        (2, "x"),
        (1, 0),
    ),
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compact_grammars_have_no_whitespace(case: Case) -> None:
    recognizer = Recognizer(grammar_alone(case.schema, whitespace=Whitespace.COMPACT))
    for value in case.accept:
        compact, spaced = json.dumps(value, separators=(",", ":")), json.dumps(value)
        assert recognizer.matches(compact)
        assert compact == spaced or not recognizer.matches(spaced)
    for value in case.reject:
        assert not recognizer.matches(json.dumps(value, separators=(",", ":")))


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


@pytest.mark.parametrize("text", ["10e308", "1e309", "9.9e308", "100e300"])
def test_exponents_stay_within_a_double(text: str) -> None:
    assert not Recognizer(grammar_alone({"type": "number"})).matches(text)


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
