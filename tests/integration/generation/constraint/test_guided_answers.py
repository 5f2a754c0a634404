"""Answers under a schema in every format: the thought is free and then the schema holds; beside tools the model calls
or answers under the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.core.constraint import Guide, JsonSchemaConstraint, ThoughtGuide
from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.generation.answer_plan import ChatPlan
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from tests.support.gguf.byte_vocabulary import EOS, FIRST_BYTE, byte_vocabulary, pieces_of
from tests.support.helpers.compiling import translate_inline

pytestmark = pytest.mark.anyio

forms = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "integer", "maximum": 99}},
    "required": ["name"],
    "additionalProperties": False,
}
"""Its name is that of the first key in the calls of some formats."""
CONSTRAINT = JsonSchemaConstraint(SCHEMA)
TOOLS = (
    Tool(name="add", parameters=SCHEMA),
    Tool(name="now", parameters={"type": "object", "properties": {}}),
)
THOUGHT = 'Hm, {"name": "no number"} or 7?'


FACTORY = GrammarFactory(byte_vocabulary(pieces_of()))


def takes(guide: Guide, text: str) -> bool:
    """Whether the answer may be this text, to its end."""
    executor = FACTORY.guided(guide)
    data = text.encode()
    while True:
        for token in executor.forced():
            if not data or token != FIRST_BYTE + data[0]:
                return False
            data = data[1:]
        if not data:
            return executor.is_complete or executor.allows(EOS)
        if not executor.allows(FIRST_BYTE + data[0]):
            return False
        executor.accept(FIRST_BYTE + data[0])
        data = data[1:]


def call(form: ChatFormat, n: Any) -> str:
    return write_calls(form.calls, [ToolCall("call00000", FunctionCall("add", json.dumps({"name": n})))])


def thinking(form: ChatFormat, prompt: ChatPrompt, *, is_open: bool) -> tuple[ThoughtGuide, str, str]:
    """A model that thinks, and the marks around its thought."""
    assert form.thought is not None
    opens, closes = form.thought.opens[0].strip(), form.thought.closes[0].strip()
    plan = ChatPlan(prompt, f"{opens} {closes}", form, prompt.tools)
    guide = plan.thought_guide(form.thought.opens[0] if is_open else "Hi")
    assert guide is not None
    return guide, "" if is_open else opens, closes


def prompt_of(*tools: Tool) -> ChatPrompt:
    return ChatPrompt(
        messages=(Message(role="user", content="Hi"),), tools=tools, template_kwargs={"enable_thinking": True}
    )


async def constrained(prompt: ChatPrompt, form: ChatFormat, thought: ThoughtGuide | None) -> Guide:
    plan = ChatPlan(prompt, None, form, prompt.tools)
    guide, _ = await plan.constrained(thought, CONSTRAINT, GrammarCache(translate_inline))
    assert guide is not None
    return guide


@pytest.mark.parametrize("is_open", [True, False], ids=["opened by the prompt", "opened by the model"])
@pytest.mark.parametrize(
    "form", [form for form in FORMATS if form.thought is not None], ids=lambda form: form.name
)
async def test_a_thought_is_free_and_then_the_schema_holds(form: ChatFormat, is_open: bool) -> None:
    prompt = prompt_of()
    thought, opens, closes = thinking(form, prompt, is_open=is_open)
    guide = await constrained(prompt, form, thought)
    before = opens + THOUGHT + closes + guide.lead_after_thought
    assert takes(guide, before + '{"name": 7}')
    for wrong in ('{"name": "7"}', '{"name": 100}', "Seven.", ""):
        assert not takes(guide, before + wrong), wrong


@forms
async def test_without_a_thought_the_schema_holds_from_the_start(form: ChatFormat) -> None:
    guide = await constrained(prompt_of(), form, None)
    assert takes(guide, form.text_opens + '{"name": 7}')
    for wrong in ('{"name": "7"}', "Seven.", ""):
        assert not takes(guide, form.text_opens + wrong), wrong


@forms
async def test_beside_tools_the_model_calls_or_answers_under_the_schema(form: ChatFormat) -> None:
    prompt = prompt_of(*TOOLS)
    guide = await constrained(prompt, form, None)
    assert takes(guide, form.text_opens + '{"name": 7}')
    assert takes(guide, call(form, 7))
    for wrong in (form.text_opens + '{"name": 100}', form.text_opens + "Seven.", call(form, 100), ""):
        assert not takes(guide, wrong), wrong
