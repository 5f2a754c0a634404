"""Published chat templates show all of a conversation."""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.detect import detect_format
from jan_serve.chat.template import render_prompt
from jan_serve.core.events import TextDelta, ToolCallDelta
from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt, RenderRequest
from tests.unit.chat.formats.real_templates import RealTemplate, templates

TOOLS = (
    Tool(
        name="get_weather",
        description="Weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    Tool(name="now", parameters={"type": "object", "properties": {}}),
)
TODAY = datetime(2026, 1, 2, tzinfo=UTC)
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
    return rendered(template, messages=messages, tools=tools)


def rendered(template: RealTemplate, **prompt: Any) -> str:
    return render_prompt(
        RenderRequest(
            prompt=ChatPrompt(**prompt),
            template=template.source,
            bos_token="<s>",
            eos_token="</s>",
            now=TODAY,
        )
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


NO_SWITCH = {"tencent-Hy3": "thinks only where the request names an effort"}
OFF_WHERE_ABSENT = (
    "LGAI-EXAONE-4.0",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "google-gemma-4-31B-it",
    "google-gemma-4-31B-it-interleaved",
    "poolside-Laguna-XS-2.1",
    "poolside-Laguna-XS.2",
)
"""Templates that say themselves that a switch which is absent is off."""


def closes_thought(template: RealTemplate, **prompt: Any) -> bool:
    """Whether the prompt ends with a thought that is closed already: the model does not think."""
    text = rendered(template, messages=(ASK,), **prompt).rstrip()
    thought = detect_format(template.source).thought
    return thought is not None and any(text.endswith(mark.strip()) for mark in thought.closes)


@real
def test_a_model_thinks_unless_the_request_says_otherwise(template: RealTemplate) -> None:
    is_off = template.name in NO_SWITCH or template.name in OFF_WHERE_ABSENT
    assert closes_thought(template) == is_off
    assert closes_thought(template, template_kwargs={"enable_thinking": None}) == is_off
    for effort in ("minimal", "low", "medium", "high"):
        assert not closes_thought(template, template_kwargs={"reasoning_effort": effort}), effort


@real
def test_every_spelling_of_the_switch_is_one_switch(template: RealTemplate) -> None:
    def shown(**prompt: Any) -> str:
        return rendered(template, messages=(ASK,), **prompt)

    off = shown(template_kwargs={"enable_thinking": False})
    assert shown(reasoning_budget=0) == shown(template_kwargs={"thinking": False}) == off
    on = shown(template_kwargs={"enable_thinking": True})
    assert shown(template_kwargs={"thinking": True}) == on
    if re.search(r"\bif\b[^%}]*(?<![.\w])(enable_thinking|thinking_mode|thinking_budget)\b", template.source):
        assert on != off


@pytest.mark.parametrize(
    "template",
    [
        each
        for each in templates()
        if re.search(r"\b(date_string|datetime)\b", each.source)
        and "Llama-4" not in each.name  # it has the date beside built-in tools only
    ],
    ids=lambda template: template.name,
)
def test_a_template_that_shows_the_date_shows_todays(template: RealTemplate) -> None:
    text = render(template, (SYSTEM, ASK), TOOLS)
    assert (
        "Today is Jan 02 2026." if "firefunction" in template.name else "Today Date: 02 Jan 2026\n"
    ) in text
    assert "2024" not in text


def called_with(arguments: str, text: str = "") -> tuple[Message, ...]:
    """A conversation with one earlier call."""
    call = ToolCall(IDS[0], FunctionCall("get_weather", arguments))
    return (ASK, Message(role="assistant", content=text, tool_calls=(call,)), RESULTS[0])


@real
@pytest.mark.parametrize("said", ["", "TEXT-1"], ids=["call", "text and call"])
def test_a_turn_is_shown_as_the_model_writes_it(template: RealTemplate, said: str) -> None:
    """What the template's format reads back is what the turn had: a history in another form is imitated."""
    tools = (
        Tool(
            name="get_weather",
            description="Weather",
            parameters={
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
            },
        ),
    )
    arguments = {"city": "OSLO-1", "days": 3, "tags": ["a", "b"]}
    prompt, text = (
        render(template, (ASK,), tools),
        render(template, called_with(json.dumps(arguments), said), tools),
    )
    # Where the two part in the middle of a tag, the tag belongs to the answer.
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(prompt, text, strict=False))
    same = re.sub(r"<[^>]*$", "", "".join(one for one, _ in pairs))
    answer = text[len(same) :].partition("RESULT-1")[0].removeprefix("<|CHATBOT_TOKEN|>")
    chat_format = detect_format(template.source)
    if said and chat_format.calls.at_start:  # the text is a turn of its own
        assert said in answer
        return
    parser = StreamParser(
        chat_format,
        lambda name, own: name,
        tools=tools,
        starts_in_thought=chat_format.prompt_opens_thought(same),
    )
    deltas = [*parser.feed(answer), *parser.finish()]
    read = "".join(
        delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta) and not delta.call_index
    )
    assert json.loads(read or "null") == arguments, answer
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert text.strip().startswith(said), answer


NO_OBJECTS = {
    '{"city": "OSLO-1", "n": "HALF': '{"city": "OSLO-1"}',
    '{"city": "OSLO-1"': '{"city": "OSLO-1"}',
    "null": "{}",
    "[]": "{}",
    '"x"': "{}",
    "5": "{}",
    "": "{}",
    '{"city": "OSLO-1",}': '{"city": "OSLO-1"}',
    '{"city": "OSLO-1"}{"city": "ROME-2"}': '{"city": "OSLO-1"}',
    '```json\n{"city": "OSLO-1"}\n```': '{"city": "OSLO-1"}',
    '{"city": ' * 500 + "1" + "}" * 500: "{}",
    '{"city": "\\ud83d"}': '{"city": "\ufffd"}',
}
"""Arguments of an earlier call, and those that are shown."""


@real
def test_a_call_that_is_no_json_object_ends_no_conversation(template: RealTemplate) -> None:
    for tools in (TOOLS, ()):
        expected = {shown: render(template, called_with(shown), tools) for shown in NO_OBJECTS.values()}
        for written, shown in NO_OBJECTS.items():
            assert render(template, called_with(written), tools) == expected[shown], written


@real
def test_a_partial_answer_with_a_thought_has_that_thought_only(template: RealTemplate) -> None:
    thought = detect_format(template.source).thought
    if thought is None or template.name in NO_SWITCH:
        return
    opening, closing = thought.opens[0].strip(), thought.closes[0].strip()
    answer = f"Plan.\n{closing}\n\nSo"
    text = render(template, (ASK, Message(role="assistant", content=f"{opening}\n{answer}")))
    before = text.removesuffix(answer).rstrip()
    assert before != text
    assert before.endswith(opening)
    assert not before.removesuffix(opening).rstrip().endswith((opening, closing))
