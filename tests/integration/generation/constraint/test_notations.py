"""In notations that are no JSON, no constraint accepts a call that the format's parser reads as an invalid one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.core.messages import Tool
from jan_serve.errors import UnsupportedSchema
from tests.support.call_grammars import call_trees
from tests.support.judged_calls import NOTATIONS, CallJudge
from tests.unit.constraint.sampling import Sampler

SAMPLES = 20

each_notation = pytest.mark.parametrize("form", NOTATIONS, ids=lambda form: form.name)

TEXT: dict[str, Any] = {"type": "string"}
VARIANTS: list[Any] = [
    {"properties": {"kind": {"const": kind}, "value": {"type": of}}, "required": ["kind", "value"]}
    for kind, of in [("text", "string"), ("number", "integer")]
]
NAMES = [
    "a>b",
    'a"',
    'a">',
    "</arg_key>",
    "</arg_key:opensource>",
    '<|"|>',
    "/invoke",
    "/",
    " a ",
    "",
    "a=b",
    "é",
]

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "a text beside another declared type": (
        {"properties": {"a": {"type": ["string", "integer"], "allOf": [TEXT]}}},
        [{"a": "5"}, {"a": "x"}, {"a": 5}],
    ),
    "a text without another declared type": (
        {"properties": {"a": {"type": ["string", "null"], "not": {"type": "null"}}}},
        [{"a": "null"}, {"a": None}, {"a": "x"}],
    ),
    "an enumeration of texts": (
        {"properties": {"a": {"type": ["string", "integer"], "enum": ["1", "x", 2]}}},
        [{"a": "1"}, {"a": 1}, {"a": "x"}, {"a": 2}, {"a": "2"}],
    ),
    "types that depend on another argument": (
        {"oneOf": VARIANTS},
        [{"kind": kind, "value": value} for kind in ("text", "number") for value in (5, "5", "x")],
    ),
    "types that depend on a condition": (
        {
            "properties": {"kind": TEXT},
            "required": ["kind", "value"],
            "if": {"properties": {"kind": {"const": "text"}}},
            "then": {"properties": {"value": TEXT}},
            "else": {"properties": {"value": {"type": "integer"}}},
        },
        [{"kind": kind, "value": value} for kind in ("text", "number") for value in (5, "5", "x")],
    ),
    "a text by its name": (
        {"patternProperties": {"^a": TEXT}, "required": ["a1"]},
        [{"a1": "5"}, {"a1": "x"}, {"a1": 5}],
    ),
    "a text by an anchor": (
        {"properties": {"a": {"$ref": "#t"}}, "$defs": {"t": {"$anchor": "t", **TEXT}}},
        [{"a": "5"}, {"a": "x"}],
    ),
    "one type has no name": (
        {
            "properties": {
                "a": {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "null"}, {"minimum": 3}]}
            }
        },
        [{"a": "x"}, {"a": 5}, {"a": 2}, {"a": None}, {"a": "xyz"}, {"a": []}],
    ),
    "spaces that a reader strips": (
        {"properties": {"a": {"type": ["string", "integer"], "minLength": 2, "maximum": 3}}},
        [{"a": f"{space}5"} for space in " \n\t\x1c\x1d\x1e\x1f\x85\xa0\u2003\ufeff"] + [{"a": "ab"}],
    ),
    "line breaks around a text": (
        {"properties": {"a": {"enum": ["\n", "x\n", "\nx", "\nx\n"]}, "b": {"enum": ["\n", "\n\n", None]}}},
        [
            *({"a": text} for text in ("\n", "x\n", "\nx", "\nx\n", "x", "")),
            *({"b": text} for text in ("\n", "\n\n", "", None)),
        ],
    ),
    "texts that begin like a section of XML": (
        {
            "properties": {
                "a": TEXT,
                "b": {"type": "string", "minLength": 12},
                "c": {"type": "string", "maxLength": 5000},
                "d": {"enum": ["<![CDATA[x]]>", "x"]},
                "e": {"type": ["string", "integer"], "maxLength": 20},
                "f": {"type": "string", "maxLength": 20, "minLength": 2},
            }
        },
        [
            {name: text}
            for name in "abcdef"
            for text in ("<![CDATA[x]]>", "<![CDATA[x", "<![CDATA[x]]>y", "<![CDATAx", "x", "<![CDATA[]]>")
        ],
    ),
    "names": (
        {"properties": {key: {"type": "integer"} for key in NAMES}, "additionalProperties": False},
        [{name: 1} for name in NAMES],
    ),
    "names that begin with another one": (
        {
            "properties": {"a": {"type": "integer"}, **{key: TEXT for key in NAMES}},
            "additionalProperties": False,
        },
        [{name: "x"} for name in NAMES],
    ),
}


@each_notation
@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_is_read_as_valid(form: ChatFormat, name: str) -> None:
    keywords, calls = CASES[name]
    judge = CallJudge(form, {"type": "object", **keywords})
    found = {text: judge.judged(text) for arguments in calls for text in judge.written(arguments)}
    assert {text: judged.problem for text, judged in found.items() if judged.problem} == {}
    assert any(judged.accepted for judged in found.values())


@each_notation
def test_what_a_grammar_writes_is_read_as_valid(form: ChatFormat) -> None:
    random = Random(form.name)
    for name, (keywords, _) in CASES.items():
        schema = {"type": "object", **keywords}
        judge = CallJudge(form, schema)
        sampler = Sampler(call_trees(form, [Tool(name="f", parameters=schema)], parallel=False)[0])
        for text in (sampler.text(random) for _ in range(SAMPLES)):
            assert judge.read(text).problem is None, (name, text)


def test_a_text_in_a_section_may_hold_tags() -> None:
    form = next(form for form in NOTATIONS if form.name == "minicpm5")
    judge = CallJudge(form, {"type": "object", "properties": {"a": TEXT}})
    (text,) = judge.written({"a": "<![CDATA[one</param>\n</function>]]>"})
    assert judge.judged(text) == (True, {"a": "one</param>\n</function>"}, None)


@each_notation
@pytest.mark.parametrize("name", ["file-path", "a.b", "$filter", "X_1", "ä"])
def test_usual_names_are_written(form: ChatFormat, name: str) -> None:
    judge = CallJudge(form, {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]})
    for text in judge.written({name: 1}):
        assert judge.judged(text) == (True, {name: 1}, None)


@each_notation
@pytest.mark.parametrize("arguments", [{"kind": "text", "value": "x"}, {"kind": "number", "value": 5}])
def test_each_variant_is_written(form: ChatFormat, arguments: dict[str, Any]) -> None:
    judge = CallJudge(form, {"type": "object", "oneOf": VARIANTS})
    for text in judge.written(arguments):
        assert judge.judged(text) == (True, arguments, None)


@pytest.mark.parametrize(
    ("format_name", "name"), [("qwen3-coder", "a>b"), ("lfm2", "a b"), ("minimax-m2", 'a"')]
)
def test_a_required_name_that_cannot_be_written_is_refused(format_name: str, name: str) -> None:
    form = next(form for form in NOTATIONS if form.name == format_name)
    with pytest.raises(UnsupportedSchema, match="cannot hold the name"):
        CallJudge(form, {"type": "object", "properties": {name: TEXT}, "required": [name]})
