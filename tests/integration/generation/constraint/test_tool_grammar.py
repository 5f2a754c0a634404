"""The arguments of one tool in each notation: what a schema allows, and what is said where it cannot be enforced."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.literals import GEMMA, literal_to_json
from jan_serve.constraint.ast import Mode
from jan_serve.constraint.lark.notation import LAZY
from jan_serve.errors import (
    GrammarTooComplex,
    InvalidRequest,
    InvalidSchema,
    JanServeError,
    UnsupportedSchema,
)
from jan_serve.generation.constraint.tool_grammar import (
    ANY_ARGUMENTS,
    BOUNDS,
    COUNTED_NAMES,
    has_free_text,
    long_bounds,
    tool_arguments,
    tool_grammar,
    without_larger,
)
from tests.unit.constraint.recognizer import matches

BY_NAME = {form.name: form for form in FORMATS}
ONE_OF_EACH = ("hermes", "lfm2", "gemma4", "qwen3-coder", "minimax-m3")
"""JSON, Python, Gemma, tagged and nested tags."""
DSML = "\uff5cDSML\uff5c"
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
LONG: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": ["string", "integer"], "maxLength": 65_536}},
}
ELSEWHERE: dict[str, Any] = {"type": "object", "properties": {"x": {"$ref": "https://example.com/x"}}}

RAW = [form for form in FORMATS if has_free_text(form)]

each_notation = pytest.mark.parametrize("form", [BY_NAME[name] for name in ONE_OF_EACH], ids=ONE_OF_EACH)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (
            "hermes",
            ['{"city": "Bonn"}', '{"city":"Bonn","days":3}'],
            ['{"city": "Bonn!!"}', '{"days": 3}', '{"city": "Bonn", "days": 0}', '{"city": "Bonn"} '],
        ),
        (
            "lfm2",
            ['city="Bonn"', 'city="Bonn", days=3'],
            ['city="Bonn!!"', "days=3", 'city="Bonn", days=0', "city=Bonn"],
        ),
        (
            "gemma4",
            ['{city:<|"|>Bonn<|"|>}', '{city:<|"|>Bonn<|"|>,days:3}'],
            ['{city:<|"|>Bonn!!<|"|>}', "{days:3}", '{city:"Bonn"}', 'city:<|"|>Bonn<|"|>'],
        ),
        (
            "qwen3-coder",
            [
                "<parameter=city>\nBonn\n</parameter>\n",
                "<parameter=city>\nBonn\n</parameter>\n<parameter=days>\n3\n</parameter>\n",
            ],
            ["<parameter=city>\nBonn!!\n</parameter>\n", "<parameter=days>\n3\n</parameter>\n", ""],
        ),
        (
            "minimax-m3",
            ["]<]minimax[>[<city>Bonn]<]minimax[>[</city>"],
            ["]<]minimax[>[<city>Bonn!!]<]minimax[>[</city>", "<city>Bonn</city>", ""],
        ),
        (
            "deepseek-v3.2",
            [f'<{DSML}parameter name="city" string="true">Bonn</{DSML}parameter>\n'],
            [f'<{DSML}parameter name="city" string="false">Bonn</{DSML}parameter>\n'],
        ),
        (
            "kimi-k3",
            ['<|open|>argument key="city" type="string"<|sep|>Bonn<|close|>argument<|sep|>'],
            ['<|open|>argument key="city" type="number"<|sep|>Bonn<|close|>argument<|sep|>'],
        ),
    ],
)
def test_arguments_follow_the_schema_in_the_notation_of_the_format(
    name: str, right: list[str], wrong: list[str]
) -> None:
    made, warnings = tool_arguments(BY_NAME[name], CITY)
    assert warnings == ()
    assert [text for text in right if not matches(made.grammar, text)] == []
    assert [text for text in wrong if matches(made.grammar, text)] == []


@each_notation
@pytest.mark.parametrize(
    "parameters",
    [
        {**CITY, "type": "OBJECT", "nullable": True},
        {key: value for key, value in CITY.items() if key != "type"},
        {**CITY, "type": ["object"]},
        {**CITY, "type": ["object", "null"]},
        {**CITY, "type": ["string", "object"]},
    ],
    ids=["Gemini", "no type", "one", "or null", "or a string"],
)
def test_arguments_are_an_object_whatever_else_the_schema_allows(
    form: ChatFormat, parameters: dict[str, Any]
) -> None:
    assert tool_grammar(form, parameters) == tool_grammar(form, CITY)
    assert not matches(tool_arguments(form, parameters)[0].translate(Mode.IN_RULES).grammar, "null")


EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


@each_notation
@pytest.mark.parametrize(
    ("more", "is_closed"),
    [
        ({}, True),
        ({"required": []}, True),
        ({"description": "x", "minProperties": 0}, True),
        ({"additionalProperties": False}, True),
        ({"additionalProperties": True}, False),
        ({"additionalProperties": {}}, False),
        ({"patternProperties": {"^a": {}}}, False),
        ({"required": ["a"]}, False),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, False),
    ],
)
def test_a_tool_that_lists_no_properties_takes_none(
    form: ChatFormat, more: dict[str, Any], is_closed: bool
) -> None:
    closed = tool_grammar(form, EMPTY | {"additionalProperties": False}, strict=True)
    assert (tool_grammar(form, EMPTY | more).piece == closed.piece) is is_closed
    assert (tool_grammar(form, EMPTY | more, strict=False).piece == closed.piece) is is_closed
    open_object = tool_grammar(form, {"type": "object"}).piece
    assert open_object != closed.piece


@each_notation
@pytest.mark.parametrize(
    ("parameters", "error", "reason"),
    [
        (
            {"type": "object", "not": {"properties": {"x": {"pattern": "(?<=a)b"}}}},
            UnsupportedSchema,
            "lookbehind",
        ),
        ({"type": "object", "properties": []}, InvalidSchema, "must be an object of schemas"),
        ({"type": 5}, InvalidSchema, "is not a JSON type"),
        ({"type": "string"}, UnsupportedSchema, "no JSON object satisfies the schema"),
        ({"type": ["array", "null"]}, UnsupportedSchema, "no JSON object satisfies the schema"),
    ],
)
def test_a_schema_that_cannot_be_enforced_becomes_any_object(
    form: ChatFormat, parameters: dict[str, Any], error: type[JanServeError], reason: str
) -> None:
    grammar = tool_grammar(form, parameters)
    assert grammar.piece == tool_grammar(form, ANY_ARGUMENTS).piece
    [warning] = grammar.warnings
    assert reason in warning
    with pytest.raises(error, match=reason):
        tool_grammar(form, parameters, strict=True)


SET: dict[str, Any] = {"type": "array", "items": {"type": "object", "additionalProperties": False}}
BACK: dict[str, Any] = {"type": "string", "maxLength": 5}


@each_notation
@pytest.mark.parametrize(
    ("refused", "rest", "keywords"),
    [
        ({"x": {"$ref": "https://example.com/x"}}, {"x": {}}, ["$ref"]),
        ({"x": {**BACK, "pattern": "(?<=a)b"}}, {"x": BACK}, ["pattern"]),
        ({"x": {**SET, "uniqueItems": True}}, {"x": SET}, ["uniqueItems"]),
        (
            {"x": {**SET, "uniqueItems": True}, "y": {"items": {**BACK, "pattern": r"(a)\1"}}},
            {"x": SET, "y": {"items": BACK}},
            ["pattern", "uniqueItems"],
        ),
    ],
)
def test_keywords_that_cannot_be_enforced_are_dropped_alone(
    form: ChatFormat, refused: dict[str, Any], rest: dict[str, Any], keywords: list[str]
) -> None:
    schema = {"type": "object", "properties": {**refused, "n": {"type": "integer"}}, "required": ["n"]}
    held = {**schema, "properties": {**rest, "n": {"type": "integer"}}}
    grammar = tool_grammar(form, schema)
    assert grammar.piece == tool_grammar(form, held).piece
    assert sorted(warning.split("`")[1] for warning in grammar.warnings) == keywords
    with pytest.raises(UnsupportedSchema):
        tool_grammar(form, schema, strict=True)


@pytest.mark.parametrize(
    ("place", "warnings"),
    [
        ("not", ["`not` at /properties/x is not enforced"]),
        (
            "oneOf",
            [
                "`oneOf` at /properties/x is enforced as `anyOf`",
                "`pattern` at /properties/x/anyOf/0 is not enforced",
            ],
        ),
        ("contains", ["`contains` at /properties/x is not enforced"]),
        ("$defs", ["`not` at /properties/x is not enforced"]),
    ],
)
def test_a_keyword_is_dropped_only_where_more_is_allowed_without_it(place: str, warnings: list[str]) -> None:
    part: dict[str, Any] = {**BACK, "pattern": "(?<=a)b"}
    inner = [part, {"type": "null"}] if place == "oneOf" else {"x": part} if place == "$defs" else part
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {place: inner}}}
    if place == "$defs":
        schema = {**schema, "$defs": {"x": part}, "properties": {"x": {"not": {"$ref": "#/$defs/x"}}}}
    found = [warning.partition(":")[0] for warning in tool_grammar(BY_NAME["hermes"], schema).warnings]
    assert found == warnings


@pytest.mark.parametrize(
    ("schema", "rest"),
    [
        ({"patternProperties": {"(?<=a)b": {}}, "additionalProperties": False}, {}),
        (
            {"properties": {"x": {"$ref": "https://example.com/x"}}, "unevaluatedProperties": False},
            {"properties": {"x": {}}},
        ),
        (
            {"required": ["a"], "prefixItems": 3, "properties": {"a": {"items": {"pattern": "(?<=a)b"}}}},
            {"required": ["a"], "properties": {"a": {"items": {}}}},
        ),
    ],
)
def test_a_keyword_goes_with_those_that_would_allow_less_without_it(
    schema: dict[str, Any], rest: dict[str, Any]
) -> None:
    form = BY_NAME["hermes"]
    found = tool_grammar(form, {"type": "object", **schema})
    assert found.piece == tool_grammar(form, {"type": "object", **rest}).piece
    assert all(": " in warning and " at /" in warning for warning in found.warnings)


ENUM: dict[str, Any] = {"enum": ["a", "b"]}


@each_notation
@pytest.mark.parametrize(
    ("keyword", "refused"),
    [
        ("multipleOf", {"type": "number", "multipleOf": 987654321.123}),
        ("minimum", {"type": "integer", "minimum": 10**500}),
        ("pattern", {"type": "string", "pattern": "(?<=x)a"}),
        ("not", {"type": "number", "not": {"enum": list(range(3000))}}),
        ("minLength", {"type": "string", "minLength": -1}),
        ("type", {"type": "strin"}),
        ("required", {"type": "object", "required": None}),
        ("properties", {"type": "object", "properties": []}),
        ("minItems", {"type": "array", "minItems": 10, "contains": {"const": 1}, "maxContains": 500}),
    ],
)
@pytest.mark.parametrize("depth", [0, 1])
def test_any_refusal_costs_one_keyword_at_its_place(
    form: ChatFormat, keyword: str, refused: dict[str, Any], depth: int
) -> None:
    place = "/properties/p"
    rest = {key: value for key, value in refused.items() if key != keyword}
    if depth:
        refused, rest = ({"type": "object", "properties": {"q": each}} for each in (refused, rest))
        place += "/properties/q"

    def schema(p: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"e": ENUM, "p": p},
            "required": ["e"],
            "additionalProperties": False,
        }

    with pytest.raises(InvalidRequest) as caught:
        tool_grammar(form, schema(refused), strict=True)
    assert place in caught.value.message
    found = tool_grammar(form, schema(refused))
    [warning] = found.warnings
    assert warning.startswith(f"`{keyword}` at {place} is not enforced: ")
    assert found.piece == tool_grammar(form, schema(rest)).piece


def test_a_length_that_the_notation_cannot_count_is_dropped_alone() -> None:
    words: dict[str, Any] = {"type": "array", "items": {"type": "string", "maxLength": 10_000}}
    schema: dict[str, Any] = {"type": "object", "properties": {"words": words, "n": {"type": "integer"}}}
    assert tool_grammar(BY_NAME["gemma4"], schema).warnings == (long_bounds(BOUNDS[0]),)
    with pytest.raises(GrammarTooComplex):
        tool_grammar(BY_NAME["gemma4"], schema, strict=True)


@pytest.mark.parametrize(
    ("name", "warnings"),
    [
        ("hermes", ()),
        ("lfm2", ()),
        ("qwen3-coder", (long_bounds(BOUNDS[0]),)),
        ("gemma4", (long_bounds(BOUNDS[0]),)),
        ("deepseek-v3.2", (long_bounds(BOUNDS[0]),)),
    ],
)
def test_a_length_that_unquoted_text_cannot_be_held_to_is_dropped(
    name: str, warnings: tuple[str, ...]
) -> None:
    form = BY_NAME[name]
    assert tool_grammar(form, LONG).warnings == warnings
    if warnings:
        with pytest.raises(GrammarTooComplex):
            tool_grammar(form, LONG, strict=True)
        both: dict[str, Any] = {
            "type": "object",
            "properties": {**LONG["properties"], **ELSEWHERE["properties"]},
        }
        keyword, *lengths = tool_grammar(form, both).warnings
        assert "outside this document" in keyword and tuple(lengths) == warnings


@pytest.mark.parametrize("form", RAW, ids=lambda form: form.name)
@pytest.mark.parametrize("length", [{}, {"maxLength": 300}, {"minLength": 1, "maxLength": BOUNDS[0]}])
def test_text_without_quotes_is_one_terminal(form: ChatFormat, length: dict[str, Any]) -> None:
    """As rules for single characters its masks take a hundred times as long."""
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string", **length}}}
    grammar = tool_grammar(form, schema)
    assert grammar.warnings == ()
    assert any(header.endswith(LAZY) for header in grammar.piece.definitions)
    assert len(grammar.piece.definitions) < 120


def test_strings_within_gemmas_arrays_and_objects_are_terminals() -> None:
    text: dict[str, Any] = {"type": "string", "maxLength": 2_000}
    nested: dict[str, Any] = {
        "type": "object",
        "properties": {"a": text, "b": {"type": "array", "items": text}},
    }
    grammar = tool_grammar(BY_NAME["gemma4"], {"type": "object", "properties": {"x": nested}})
    assert grammar.warnings == ()
    assert len(grammar.piece.definitions) < 120


def test_only_large_bounds_go() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "maxLength": 524_288, "minLength": 1},
            "b": {"type": "string", "maxLength": BOUNDS[0]},
            "maxLength": {"anyOf": [{"type": "string", "maxLength": 9999.0}, {"const": {"maxLength": 9999}}]},
        },
    }
    assert without_larger(schema, ("minLength", "maxLength"), BOUNDS[0]) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "minLength": 1},
            "b": {"type": "string", "maxLength": BOUNDS[0]},
            "maxLength": {"anyOf": [{"type": "string"}, {"const": {"maxLength": 9999}}]},
        },
    }


MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}


@each_notation
def test_names_are_counted_only_where_none_repeats(form: ChatFormat) -> None:
    """A reader keeps one value of a name that is there twice."""
    schema: dict[str, Any] = {"type": "object", "properties": {"map": MAP}}
    is_json = form.name == "hermes"  # it has a memory of names
    assert tool_grammar(form, schema).warnings == (() if is_json else (COUNTED_NAMES,))
    if not is_json:
        with pytest.raises(UnsupportedSchema, match="cannot be counted"):
            tool_grammar(form, schema, strict=True)
    one_is_enough: dict[str, Any] = {**MAP, "properties": {"a": {}}, "required": ["a"]}
    assert tool_grammar(form, {"type": "object", "properties": {"map": one_is_enough}}).warnings == ()
    closed: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "additionalProperties": False,
        "minProperties": 2,
    }
    assert tool_grammar(form, {"type": "object", "properties": {"map": closed}}).warnings == ()


QUOTE = '<|"|>'
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "list": {"type": "array", "items": {"type": "integer", "minimum": -2}, "maxItems": 2},
        "point": {
            "type": "object",
            "properties": {
                "kind": {"enum": ["a", "b c"]},
                "its name": {"type": "string", "maxLength": 3},
                "more": {"$ref": "#/properties/point"},
            },
            "required": ["kind"],
            "additionalProperties": False,
        },
        "answers": {
            "type": "object",
            "propertyNames": {"maxLength": 6},
            "additionalProperties": {"type": ["string", "null"]},
        },
        "any": {},
    },
    "additionalProperties": False,
}
NESTED_RIGHT = [
    "{}",
    "{list:[]}",
    "{list:[-2,7]}",
    f"{{point:{{kind:{QUOTE}b c{QUOTE}}}}}",
    f"{{point:{{kind:{QUOTE}a{QUOTE},{QUOTE}its name{QUOTE}:{QUOTE}<{QUOTE},more:{{kind:{QUOTE}a{QUOTE}}}}}}}",
    f"{{answers:{{x-1:null,é:{QUOTE}[{QUOTE},{QUOTE}Why, ?{QUOTE}:null}}}}",
    f"{{any:{{a:[true,{{b:{QUOTE}{QUOTE}}},-1.5e3,null]}}}}",
]
NESTED_WRONG = [
    "{list:[-3]}",
    "{list:[1,2,3]}",
    "{list:[1, 2]}",
    "{list:{}}",
    "{point:{}}",
    f"{{point:{{kind:{QUOTE}c{QUOTE}}}}}",
    f"{{point:{{kind:{QUOTE}a{QUOTE},x:1}}}}",
    f"{{point:{{kind:{QUOTE}a{QUOTE},{QUOTE}its name{QUOTE}:{QUOTE}long{QUOTE}}}}}",
    f"{{point:{{kind:{QUOTE}a{QUOTE},its name:{QUOTE}x{QUOTE}}}}}",
    f"{{point:{{kind:{QUOTE}a{QUOTE},more:{{}}}}}}",
    "{answers:{x:1}}",
    "{answers:{seventh:null}}",
    "{answers:{a b:null}}",
    '{any:{"a":1}}',
    "{any:x}",
]


def test_nested_values_of_gemma_follow_their_schemas() -> None:
    made, warnings = tool_arguments(BY_NAME["gemma4"], NESTED)
    assert warnings == ()
    for text in (*NESTED_RIGHT, *NESTED_WRONG):
        assert matches(made.grammar, text) == (text in NESTED_RIGHT), text


@pytest.mark.parametrize("text", NESTED_RIGHT)
def test_what_gemmas_grammar_allows_is_read_as_what_the_schema_allows(text: str) -> None:
    arguments = literal_to_json(text, GEMMA)
    assert arguments is not None
    jsonschema.validate(json.loads(arguments), NESTED)
