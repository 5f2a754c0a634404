"""Arguments of a call beside JSON: in tags, as keywords, with the name of their type."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint.ast import Literal
from jan_serve.constraint.json_schema.arguments import ArgumentNotation, ArgumentPart, translate_arguments
from jan_serve.errors import UnsupportedSchema
from tests.unit.constraint.recognizer import Recognizer

KEY, VALUE, KIND, IS_STRING = (
    ArgumentPart.KEY,
    ArgumentPart.VALUE,
    ArgumentPart.JSON_TYPE,
    ArgumentPart.IS_STRING,
)
TAGS = ArgumentNotation(argument=(Literal("<"), KEY, Literal(">"), VALUE, Literal("</>")), stop="</>")
WORDS = ArgumentNotation(argument=(KEY, Literal("="), VALUE), separator=Literal(", "))
PYTHON = ArgumentNotation(
    argument=(KEY, Literal("="), VALUE), separator=Literal(", "), python_words=True, single_quotes=True
)
QUOTED = ArgumentNotation(
    argument=(KEY, Literal(":"), VALUE), separator=Literal(","), stop="|", quote=Literal("|")
)
TYPED = ArgumentNotation(argument=(KEY, Literal(":"), KIND, Literal("="), VALUE, Literal(";")), stop=";")
FLAGGED = ArgumentNotation(
    argument=(KEY, Literal(":"), IS_STRING, Literal("="), VALUE, Literal(";")), stop=";"
)

CASES: dict[str, tuple[ArgumentNotation, dict[str, Any], list[str], list[str]]] = {
    "raw text ends at the stop": (
        TAGS,
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        ["<a>x</>", '<a>"q" 5\n</>', "<a></>", "<a>7</>"],
        ["<a>x", "<a>x</></>", "", "<b>x</>", "<a>x</><b>y</>"],
    ),
    "text of a bounded length": (
        TAGS,
        {"properties": {"a": {"type": "string", "minLength": 1, "maxLength": 3}}, "required": ["a"]},
        ["<a>x</>", "<a></</>", "<a>\n<<</>", "<a>7</>"],
        ["<a></>", "<a>abcd</>", "<a></></>", "<a>abc</", "<a>a</>b</>"],
    ),
    "text of a bounded length or another type": (
        TAGS,
        {"properties": {"a": {"type": ["string", "integer"], "maxLength": 3}}},
        ["<a>abc</>", "<a>1234</>", ""],
        ["<a>abcd</>", "<a>1x</>"],
    ),
    "text that reads as another type": (
        TAGS,
        {"properties": {"a": {"type": ["string", "integer", "null"]}}},
        ["", "<a>word</>", "<a>7</>", "<a>null</>", "<a>x-7</>"],
        ["<a>7.5</>", "<a> true</>", '<a>"w"</>', "<a>[</>", "<a>Nonesuch</>"],
    ),
    "a pattern": (
        TAGS,
        {"properties": {"a": {"type": "string", "pattern": "^[a-z<]+$"}}},
        ["<a>abc</>", "<a><</>"],
        ["<a>A</>", "<a></></>"],
    ),
    "an enumeration": (
        TAGS,
        {"properties": {"a": {"enum": ["x", "y</>", 3]}}},
        ["<a>x</>", "<a>3</>"],
        ["<a>y</></>", "<a>z</>"],
    ),
    "properties in their order": (
        WORDS,
        {"properties": {"b": {"type": "integer"}, "a": {"type": "string"}}},
        ["", "b=1", 'b=1, a="x"', 'a="\\n"'],
        ['a="x", b=1', "b=1,", "c=1", "a=x"],
    ),
    "any text between single quotes": (
        PYTHON,
        {"properties": {"a": {"type": "string", "maxLength": 3}}},
        ["a='x'", 'a="x"', "a=''", r"a='\'\\\n'", "a='\n\"\t'", r'a="\n"'],
        ["a='abcd'", "a=' ''", r"a='\'", "a='x", "a='x\"", "a=True", "a=x"],
    ),
    "an enumeration between single quotes": (
        PYTHON,
        {"properties": {"a": {"enum": ["it's", "b\n", 3, False, None]}}},
        [r"a='it\'s'", "a='b\n'", r"a='b\n'", 'a="it\'s"', "a=3", "a=False", "a=false", "a=None"],
        ["a='it's'", "a='3'", "a='b'", "a=True", "a='None'"],
    ),
    "nested values are JSON": (
        WORDS,
        {"properties": {"a": {"type": "array", "items": {"type": "integer"}}}},
        ["a=[]", "a=[1, 2]"],
        ['a=["x"]', "a=[1,"],
    ),
    "no listed property": (WORDS, {}, ["", "x=1", 'x=1, y_2="a"', "x={}"], ["é=1", "=1", "x=1 y=2"]),
    "quoted text keeps what reads as another type": (
        QUOTED,
        {"properties": {"a": {"type": ["string", "integer"]}}},
        ["a:|7|", "a:7", "a:|x y|"],
        ["a:x", "a:|x", "a:|x|y|"],
    ),
    "the name of the type": (
        TYPED,
        {"properties": {"a": {"type": ["string", "integer", "boolean"]}}},
        ["a:string=7;", "a:number=7;", "a:boolean=true;"],
        ["a:number=x;", "a:boolean=7;", "a:null=null;", "a:integer=7;"],
    ),
    "whether it is text": (
        FLAGGED,
        {"properties": {"a": {"type": ["string", "null"]}}},
        ["a:true=null;", "a:false=null;"],
        ["a:false=x;", "a:false=7;"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_arguments_of_a_schema(name: str) -> None:
    notation, keywords, accepted, refused = CASES[name]
    made = translate_arguments({"type": "object", **keywords}, notation)
    recognizer = Recognizer(made.grammar)
    assert [text for text in (*accepted, *refused) if recognizer.matches(text)] == accepted
    assert not made.most


@pytest.mark.parametrize(
    ("inner", "accepted", "refused"),
    [
        ({"type": "array"}, ["[]", "[1,'x',[null]]", "[{a:1}]"], ["[1, 2]", "[x]", "['x]", "{}"]),
        ({"type": "array", "maxItems": 1}, ["['x']"], ["[1,2]"]),
        ({"properties": {"b": {"const": "x"}}, "type": "object"}, ["{b:'x'}", "{}"], ["{b:'y'}", "{'b':1}"]),
        ({"properties": {"b c": {"const": 1}}, "type": "object"}, ["{'b c':1}"], ["{b c:1}", "{'b c':2}"]),
        ({"properties": {"b'": {"const": 1}}, "type": "object"}, ["{}", "{b:2}"], ["{b':1}", "{'b'':1}"]),
        ({"type": "object", "patternProperties": {"^x": False}}, ["{b:1,'c d':2}"], ["{x:1}", "{'x d':1}"]),
        ({"type": "null"}, ["null"], ["[]"]),
    ],
)
def test_bare_keys_and_raw_strings_at_any_depth(
    inner: dict[str, Any], accepted: list[str], refused: list[str]
) -> None:
    notation = ArgumentNotation(argument=(KEY, Literal("="), VALUE), stop="'", quote=Literal("'"))
    made = translate_arguments({"type": "object", "properties": {"a": inner}}, notation)
    recognizer = Recognizer(made.grammar)
    assert [text for text in (*accepted, *refused) if recognizer.matches(f"a={text}")] == accepted


@pytest.mark.parametrize(
    ("keywords", "keyword"),
    [
        ({"minProperties": 1}, "minProperties"),
        ({"properties": {"a": True, "b": True}, "maxProperties": 1}, "minProperties"),
        ({"properties": {"a": False}, "required": ["a"]}, "type"),
        ({"type": "string"}, "type"),
    ],
)
def test_what_the_notation_cannot_say_is_refused(keywords: dict[str, Any], keyword: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        translate_arguments({"type": "object", **keywords}, WORDS)
    assert caught.value.keyword == keyword
