"""Tools that an answer may call, and where it may think."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.chat.detect import FORMATS
from jan_serve.core.events import Finished, FinishReason, TextDelta
from jan_serve.core.messages import Message, Tool, ToolChoice
from jan_serve.core.request import ChatPrompt
from jan_serve.errors import InvalidRequest
from jan_serve.generation.answer_plan import AnswerParsers, ChatPlan, usable_tools

ADD, NOW = Tool(name="add", parameters={}), Tool(name="now", parameters={})
HERMES = next(chat_format for chat_format in FORMATS if chat_format.name == "hermes")
THINKS = "{{ messages }}<think>"


def prompt(**fields: Any) -> ChatPrompt:
    return ChatPrompt(messages=(Message(role="user", content="Hi"),), **fields)


def plan(template: str | None = None, **fields: Any) -> ChatPlan:
    asked = prompt(**fields)
    return ChatPlan(asked, template, HERMES, asked.tools)


@pytest.mark.parametrize(
    ("choice", "usable"),
    [
        (ToolChoice("auto"), (ADD, NOW)),
        (ToolChoice("required"), (ADD, NOW)),
        (ToolChoice("named", "now"), (NOW,)),
        (ToolChoice("none"), ()),
    ],
)
def test_tools_that_the_choice_allows(choice: ToolChoice, usable: tuple[Tool, ...]) -> None:
    assert usable_tools(prompt(tools=(ADD, NOW), tool_choice=choice)) == usable


@pytest.mark.parametrize(
    ("tools", "choice", "words"),
    [
        ((), ToolChoice("required"), "needs tools"),
        ((), ToolChoice("named", "add"), "needs tools"),
        ((ADD,), ToolChoice("named", "sub"), "no tool is named 'sub'"),
    ],
)
def test_a_choice_that_no_tool_meets_is_refused(
    tools: tuple[Tool, ...], choice: ToolChoice, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        usable_tools(prompt(tools=tools, tool_choice=choice))
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("name", ["get weather", 'a"b', "", "a\nb", "a(b)"])
def test_a_name_that_models_cannot_write_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="may have letters") as caught:
        usable_tools(prompt(tools=(ADD, Tool(name=name, parameters={}))))
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("parameters", "plain"),
    [
        ({"type": "object", "properties": []}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": {}, "required": None}, {"type": "object", "properties": {}}),
        ({"properties": None, "description": None}, {}),
        ({"properties": {"a": {"default": None}}}, {"properties": {"a": {"default": None}}}),
    ],
)
def test_what_a_language_writes_for_nothing_is_no_keyword(
    parameters: dict[str, Any], plain: dict[str, Any]
) -> None:
    for choice in (ToolChoice("auto"), ToolChoice("named", "f")):
        tools = (Tool(name="f", parameters=parameters, strict=True),)
        [tool] = usable_tools(prompt(tools=tools, tool_choice=choice))
        assert (tool.parameters, tool.strict) == (plain, True)


@pytest.mark.parametrize(
    ("text", "stop", "reason"),
    [
        ('<tool_call>\n{"name": "add", "arguments": {"city": "', "Paris", "stop"),
        ('<tool_call>\n{"name": "add", "arguments": {"city": "Oslo"}', "}", "tool_calls"),
        ('<tool_call>\n{"name": "add", "arguments": {"city": "', None, "tool_calls"),
    ],
)
def test_a_call_that_a_stop_string_cut_short_is_not_to_be_run(
    text: str, stop: str | None, reason: str
) -> None:
    parsers = AnswerParsers(plan(tools=(ADD,)), starts_in_thought=False)
    parsers.read(TextDelta(0, text))
    *_, finished = parsers.read(Finished(index=0, reason="stop", stop=stop))
    assert isinstance(finished, Finished)
    assert finished.reason == reason


@pytest.mark.parametrize(("reason", "stop"), [("stop", "city"), ("length", None)])
def test_a_call_that_ends_in_its_head_is_no_text(reason: FinishReason, stop: str | None) -> None:
    head = '<tool_call>\n{"name": "add", "arguments": '
    for at in range(1, len(head)):
        parsers = AnswerParsers(plan(tools=(ADD,)), starts_in_thought=False)
        events = parsers.read(TextDelta(0, head[:at]))
        events += parsers.read(Finished(index=0, reason=reason, stop=stop))
        assert [event for event in events if isinstance(event, TextDelta)] == [], head[:at]
        assert isinstance(events[-1], Finished)


def test_without_tools_the_other_choices_call_none() -> None:
    assert usable_tools(prompt(tool_choice=ToolChoice("auto"))) == ()
    assert usable_tools(prompt(tool_choice=ToolChoice("none"))) == ()


@pytest.mark.parametrize(
    ("template", "rendered", "is_open", "may_open"),
    [
        (THINKS, "Hi<think>\n", True, True),
        (THINKS, "Hi<think>\n\n</think>\n\n", False, False),
        ("{{ messages }}", "Hi<think>", True, True),
    ],
)
def test_where_a_thought_may_begin(template: str, rendered: str, is_open: bool, may_open: bool) -> None:
    guide = plan(template, template_kwargs={"enable_thinking": True}).thought_guide(rendered)
    assert guide is not None
    assert (guide.is_open, guide.may_open) == (is_open, may_open)
    assert (guide.opens, guide.closes) == (("<think>",), ("</think>",))


def test_thinking_can_be_turned_off_and_bounded() -> None:
    off = plan(THINKS, template_kwargs={"enable_thinking": False}).thought_guide("Hi")
    assert off is not None
    assert not off.may_open
    bounded = plan(THINKS, reasoning_budget=64).thought_guide("Hi")
    assert bounded is not None
    assert bounded.budget == 64
