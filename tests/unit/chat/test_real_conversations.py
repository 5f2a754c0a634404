"""Published chat templates show all of a conversation."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jan_serve.chat.template import render_prompt
from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt
from jan_serve.core.template import TemplateFacts
from tests.unit.chat.formats.real_templates import RealTemplate, templates

TOOLS = (
    Tool(
        name="get_weather",
        description="Weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    Tool(name="now", parameters={"type": "object", "properties": {}}),
)
IDS = ("aaaaaaaa1", "aaaaaaaa2")
SYSTEM = Message(role="system", content="SYSTEM-1")
ASK = Message(role="user", content="QUESTION-1")
CALLS = Message(
    role="assistant",
    content=None,
    reasoning_content="THOUGHT-1",
    tool_calls=(
        ToolCall(IDS[0], FunctionCall("get_weather", '{"city":"OSLO-1"}')),
        ToolCall(IDS[1], FunctionCall("now", "{}")),
    ),
)
RESULTS = (
    Message(role="tool", content="RESULT-1", tool_call_id=IDS[0], name="get_weather"),
    Message(role="tool", content="RESULT-2", tool_call_id=IDS[1], name="now"),
)
ANSWER = Message(role="assistant", content="ANSWER-1")
AGAIN = Message(role="user", content="QUESTION-2")

real = pytest.mark.parametrize(
    "template",
    list(templates()),
    ids=lambda template: template.name,
)


def render(template: RealTemplate, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> str:
    return render_prompt(
        ChatPrompt(messages=messages, tools=tools),
        TemplateFacts(source=template.source, bos_token="<s>", eos_token="</s>"),
        lambda: datetime(2026, 1, 2, tzinfo=UTC),
    )


@real
def test_a_conversation_with_parallel_calls_is_shown_whole(template: RealTemplate) -> None:
    text = render(template, (SYSTEM, ASK, CALLS, *RESULTS, ANSWER, AGAIN), TOOLS)
    words = "SYSTEM-1 QUESTION-1 get_weather OSLO-1 RESULT-1 RESULT-2 ANSWER-1 QUESTION-2".split()
    assert [word for word in words if word not in text] == []
    assert text.index("RESULT-1") < text.index("RESULT-2") < text.index("ANSWER-1") < text.index("QUESTION-2")
    assert '\\"city' not in text


@real
def test_a_conversation_without_tools_is_shown_whole(template: RealTemplate) -> None:
    text = render(template, (SYSTEM, ASK, ANSWER, AGAIN))
    assert [word for word in ("SYSTEM-1", "QUESTION-1", "ANSWER-1", "QUESTION-2") if word not in text] == []


@real
def test_the_prompt_ends_with_a_partial_answer(template: RealTemplate) -> None:
    text = render(template, (ASK, Message(role="assistant", content="Once upon")))
    assert "QUESTION-1" in text
    assert text.endswith("Once upon")
