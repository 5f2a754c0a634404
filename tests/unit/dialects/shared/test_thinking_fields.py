"""Each protocol's spellings of a budget of thoughts, of the switch, and of what an earlier answer thought."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.lmdeploy import chat as lmdeploy
from jan_serve.dialects.lmdeploy.chat import ChatRequest
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest
from jan_serve.dialects.openai.responses.parse import response_request
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest
from jan_serve.dialects.shared.thinking_fields import UNREAD_THOUGHT
from jan_serve.errors import InvalidRequest

Parse = Callable[[dict[str, Any]], ChatPrompt]
USER = {"role": "user", "content": "Hi"}


def prompt_of(request: Any) -> ChatPrompt:
    assert isinstance(request.prompt, ChatPrompt)
    return request.prompt


def of_chat(fields: dict[str, Any]) -> ChatPrompt:
    body = {"model": "m", "messages": [USER]} | fields
    return prompt_of(chat_request(CreateChatCompletionRequest.model_validate(body)))


def of_lmdeploy(fields: dict[str, Any]) -> ChatPrompt:
    body = {"model": "m", "messages": [USER]} | fields
    return prompt_of(lmdeploy.chat_request(ChatRequest.model_validate(body)))


def of_response(fields: dict[str, Any]) -> ChatPrompt:
    body = CreateResponseRequest.model_validate({"model": "m", "input": "Hi"} | fields)
    return prompt_of(response_request(body, (), body.input).generation)


def spelled(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


FIELDS = (
    "reasoning_budget",
    "reasoning_budget_tokens",
    "thinking_budget",
    "thinking_budget_tokens",
    "thinking_token_budget",
    "thinking.budget_tokens",
    "reasoning.max_tokens",
)
PARSERS: tuple[Parse, ...] = (of_chat, of_lmdeploy, of_response)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("value", "budget"), [(7, 7), (0, 0), (-1, None), (None, None), (1 << 40, (1 << 31) - 1)]
)
def test_a_budget_has_many_names(parse: Parse, field: str, value: Any, budget: int | None) -> None:
    prompt = parse(spelled(field, value))
    assert prompt.reasoning_budget == budget
    assert prompt.asks_for_thoughts is (False if value == 0 else None)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("field", [path for path in FIELDS if "." in path])
@pytest.mark.parametrize("value", [-2, True, "7", 1.5, [7]])
def test_what_is_no_budget_is_refused_by_name(parse: Parse, field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{field}: must be an integer, -1 or more") as caught:
        parse(spelled(field, value))
    assert caught.value.param == field.partition(".")[0]


@pytest.mark.parametrize("parse", PARSERS)
def test_two_budgets_must_be_one(parse: Parse) -> None:
    assert parse({"thinking_budget": 5, "thinking_token_budget": 5}).reasoning_budget == 5
    with pytest.raises(InvalidRequest, match=r"^thinking_token_budget: contradicts `thinking_budget`"):
        parse({"thinking_budget": 5, "thinking_token_budget": 6})


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({"enable_thinking": False}, False),
        ({"enable_thinking": True}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 9}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": "yes"}, None),
        ({"reasoning": {"enabled": False}}, False),
        ({"reasoning": {"enabled": True}}, True),
        ({"enable_thinking": True, "thinking": {"type": "disabled"}}, True),
    ],
)
def test_the_switch_has_many_names(parse: Parse, fields: dict[str, Any], thinks: bool | None) -> None:
    assert parse(fields).asks_for_thoughts is thinks


def test_the_effort_may_be_in_an_object() -> None:
    assert of_chat({"reasoning": {"effort": "low"}}) == of_chat({"reasoning_effort": "low"})
    assert of_chat({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}).reasoning_budget is None
    with pytest.raises(InvalidRequest, match=r"^reasoning.effort: must be one of none, "):
        of_chat({"reasoning": {"effort": "huge"}})


@pytest.mark.parametrize("parse", [of_chat, of_lmdeploy])
@pytest.mark.parametrize(
    ("fields", "thought"),
    [
        ({}, None),
        ({"reasoning_content": "a"}, "a"),
        ({"reasoning": "a"}, "a"),
        ({"reasoning_content": "", "reasoning": "a"}, "a"),
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning_content": None, "reasoning": {"effort": "low"}}, None),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}, "a"),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "a"}]}, "a"),
        (
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "a", "index": 0},
                    {"type": "reasoning.text", "text": "b", "index": 0},
                    {"type": "reasoning.encrypted", "data": "xx", "index": 1},
                    {"type": "reasoning.text", "text": "c", "index": 2},
                ]
            },
            "ab\n\nc",
        ),
        ({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]}, "a"),
        ({"reasoning_details": "text"}, None),
        ({"reasoning_details": [1, {"text": 5}, None]}, None),
    ],
)
def test_an_earlier_thought_has_many_names(parse: Parse, fields: dict[str, Any], thought: str | None) -> None:
    answer = {"role": "assistant", "content": "b"} | fields
    assert parse({"messages": [USER, answer, USER]}).messages[1].reasoning_content == thought


def test_a_thought_that_only_its_maker_reads_is_warned_of() -> None:
    details = [{"type": "reasoning.encrypted", "data": "xx"}]
    answer = {"role": "assistant", "content": "b", "reasoning_details": details}
    body = {"messages": [USER, answer, USER, {**answer, "reasoning": "a"}, USER]}
    parsed = chat_request(CreateChatCompletionRequest.model_validate(body))
    assert parsed.warnings == (f"messages[1]: {UNREAD_THOUGHT}",)
