"""Whatever a call grammar writes, the format's parser reads as calls whose arguments satisfy the tool's schema."""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import jsonschema
import pytest

from benchmarks.agent_session import agent_tools
from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.marked_json import HERMES
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.constraint.ast import Grammar
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.core.events import TextDelta, ToolCallDelta
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from jan_serve.errors import UnsupportedSchema
from jan_serve.generation.constraint.tool_grammar import long_bounds
from tests.support.calls.call_grammars import call_grammars, call_trees
from tests.support.calls.catalogues import HARD, Hard
from tests.unit.constraint.recognizer import matches
from tests.unit.constraint.sampling import Sampler

TOOLS = (
    Tool(
        name="get_weather",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "unit": {"enum": ["celsius", "kelvin"]},
                "when": {"anyOf": [{"type": "string", "pattern": "^[a-z]{1,9}$"}, {"type": "null"}]},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    ),
    Tool(name="now", parameters={"type": "object", "properties": {}, "additionalProperties": False}),
    Tool(
        name="add",
        parameters={
            "type": "object",
            "properties": {
                "values": {"type": "array", "items": {"type": "number"}},
                "exact": {"type": "boolean"},
            },
            "required": ["values"],
        },
    ),
)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}
SAMPLES = int(os.environ.get("TEST_DRAWS", "8"))
"""Texts of each grammar."""

forms = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def read(form: ChatFormat, text: str) -> tuple[list[tuple[str, Any]], str]:
    parser = StreamParser(form, lambda name, own: name, tools=TOOLS)
    names: list[str] = []
    arguments: list[str] = []
    texts: list[str] = []
    for delta in [*parser.feed(text), *parser.finish()]:
        match delta:
            case ToolCallDelta():
                if delta.id is not None:
                    names.append(delta.name or "")
                    arguments.append("")
                arguments[-1] += delta.arguments
            case TextDelta():
                texts.append(delta.text)
            case _:
                pass
    return [(name, json.loads(text)) for name, text in zip(names, arguments, strict=True)], "".join(texts)


def texts_of(grammar: Grammar, seed: int) -> list[str]:
    sampler, random = Sampler(grammar), Random(seed)
    return [sampler.text(random) for _ in range(SAMPLES)]


def check(calls: list[tuple[str, Any]]) -> None:
    for name, arguments in calls:
        jsonschema.validate(arguments, SCHEMAS[name])


@pytest.mark.drawn
@forms
def test_forced_calls_are_read_and_valid(form: ChatFormat) -> None:
    grammars = call_grammars(form, TOOLS, parallel=True)
    most = 0
    for text in texts_of(call_trees(form, TOOLS, parallel=True)[0], 1):
        calls, rest = read(form, text)
        assert calls, text
        assert not rest, text
        check(calls)
        most = max(most, len(calls))
    assert (most > 1) == form.calls.parallel
    assert not grammars.warnings


@pytest.mark.drawn
@forms
def test_one_call_where_there_may_be_only_one(form: ChatFormat) -> None:
    for text in texts_of(call_trees(form, TOOLS, parallel=False)[0], 2):
        assert len(read(form, text)[0]) == 1, text


@pytest.mark.drawn
@forms
def test_arguments_come_in_any_order(form: ChatFormat) -> None:
    orders = set[tuple[str, ...]]()
    for text in texts_of(call_trees(form, TOOLS[:1], parallel=False)[0], 4):
        [(_, arguments)], _ = read(form, text)
        orders.add(tuple(name for name in arguments if name in ("city", "days")))
    assert orders == {("city", "days"), ("days", "city")}


@pytest.mark.drawn
@forms
def test_what_follows_a_trigger_completes_a_call(form: ChatFormat) -> None:
    triggered = call_trees(form, TOOLS, parallel=True)[1:]
    head = write_calls(form.calls, [ToolCall("call00000", FunctionCall("now", "{}"))])
    for trigger, grammar in zip(form.calls.triggers, triggered, strict=True):
        before = head[: head.index(trigger)] if trigger in head else ""
        for text in texts_of(grammar, 3):
            calls, _ = read(form, before + trigger + text)
            declines = form.calls.no_call and form.calls.no_call in text
            assert calls or declines, trigger + text
            check(calls)


@forms
def test_an_answer_may_be_a_call_or_what_the_constraint_wants(form: ChatFormat) -> None:
    constraint = JsonSchemaConstraint(
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    )
    whole = call_trees(form, TOOLS, parallel=True, constraint=constraint)[0]
    assert matches(whole, form.text_opens + '{"a": 1}')
    assert not matches(whole, form.text_opens + '{"a": 2}')


def test_a_schema_beyond_the_translator_leaves_a_warning() -> None:
    odd = Tool(
        name="odd", parameters={"type": "object", "properties": {"x": {"$ref": "https://example.com/x"}}}
    )
    form = next(form for form in FORMATS if form.name == "hermes")
    grammars = call_grammars(form, (*TOOLS, odd), parallel=True)
    assert len(grammars.warnings) == 1
    assert "tool odd" in grammars.warnings[0]
    whole = call_trees(form, (*TOOLS, odd), parallel=True)[0]
    assert matches(whole, '<tool_call>\n{"name": "odd", "arguments": {"x": [1]}}\n</tool_call>')
    with pytest.raises(UnsupportedSchema):
        call_grammars(form, (Tool(name="odd", parameters=odd.parameters, strict=True),), parallel=True)


def tools() -> tuple[Tool, ...]:
    return tuple(
        Tool(name=tool["name"], description=tool["description"], parameters=tool["input_schema"])
        for tool in agent_tools()
    )


@pytest.mark.parametrize("form", ["hermes", "qwen3-coder", "deepseek-v3.2"])
def test_they_are_enforced(form: str) -> None:
    found = next(each for each in FORMATS if each.name == form)
    grammars = call_grammars(found, tools(), parallel=True)
    assert grammars.warnings == ()
    for grammar in (grammars.whole, *grammars.triggered):
        most = None if grammar.bounds is None else grammar.bounds.most
        assert most == (None if form == "hermes" else {"Workflow": {"script": 524_288}})


EASY = Tool(name="easy", parameters={"type": "object", "properties": {"x": {"type": "string"}}})


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_every_schema_is_enforced_beside_the_others(form: ChatFormat) -> None:
    tools = [
        EASY,
        *(Tool(name=f"hard_{n}", parameters=hard.parameters) for n, hard in enumerate(HARD.values())),
    ]
    warnings = call_grammars(form, tools, parallel=True).warnings
    # Strings of the two Gemma formats within arrays and objects are counted by the grammar, and nothing beside it.
    assert warnings == (
        (f"tool hard_2: {long_bounds(4_096)}",) if form.name in ("gemma4", "function-gemma") else ()
    )


@pytest.mark.parametrize("hard", HARD.values(), ids=HARD)
def test_calls_follow_the_schema(hard: Hard) -> None:
    whole = call_trees(HERMES, [EASY, Tool(name="hard", parameters=hard.parameters)], parallel=True)[0]

    def call(arguments: object) -> str:
        return f"<tool_call>\n{json.dumps({'name': 'hard', 'arguments': arguments})}\n</tool_call>"

    assert matches(whole, call(hard.valid))
    assert not matches(whole, call(hard.invalid))
