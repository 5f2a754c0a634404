"""In notations that are no JSON, no constraint accepts a call that the format's parser reads as an invalid one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.core.messages import Tool
from jan_serve.errors import UnsupportedSchema
from tests.support.calls.call_grammars import call_trees
from tests.support.calls.judged_calls import NOTATIONS, CallJudge
from tests.support.drawn_grid import some
from tests.support.tables import table
from tests.unit.constraint.sampling import Sampler

SAMPLES = 20

each_notation = pytest.mark.parametrize("form", NOTATIONS, ids=lambda form: form.name)

TEXT: dict[str, Any] = {"type": "string"}
VARIANTS: list[Any] = [
    {"properties": {"kind": {"const": kind}, "value": {"type": of}}, "required": ["kind", "value"]}
    for kind, of in [("text", "string"), ("number", "integer")]
]

CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = table(__file__, "cases")


@each_notation
@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_is_read_as_valid(form: ChatFormat, name: str) -> None:
    keywords, calls = CASES[name]
    judge = CallJudge(form, {"type": "object", **keywords})
    found = {text: judge.judged(text) for arguments in calls for text in judge.written(arguments)}
    assert {text: judged.problem for text, judged in found.items() if judged.problem} == {}
    assert any(judged.accepted for judged in found.values())


@pytest.mark.drawn
@each_notation
def test_what_a_grammar_writes_is_read_as_valid(form: ChatFormat) -> None:
    random = Random(form.name)
    for name, (keywords, _) in some(CASES.items(), 5, form.name):
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
