"""Bodies of /v1/messages as generation requests."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pydantic import ValidationError

from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.core.messages import Message, Tool, ToolChoice
from jan_serve.core.request import ChatPrompt, GenerationRequest, SamplingParams, StopConditions
from jan_serve.dialects.anthropic.messages.parse import message_request, shows_thoughts
from jan_serve.dialects.anthropic.messages.wire import CreateMessageRequest
from jan_serve.errors import InvalidRequest

HI: Final = [{"role": "user", "content": "Hi"}]
DEFAULTS: Final = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
TOOL: Final[dict[str, Any]] = {"name": "ls", "input_schema": {"type": "object"}}


def message(**body: Any) -> CreateMessageRequest:
    return CreateMessageRequest.model_validate({"model": "m", "max_tokens": 9, "messages": HI} | body)


def parsed(**body: Any) -> GenerationRequest:
    return message_request(message(**body))


def prompt(**body: Any) -> ChatPrompt:
    found = parsed(**body).prompt
    assert isinstance(found, ChatPrompt)
    return found


def test_defaults() -> None:
    off = {"enable_thinking": False}
    messages = (Message(role="user", content="Hi"),)
    assert parsed() == GenerationRequest(
        model="m",
        prompt=ChatPrompt(messages=messages, reasoning_budget=0, template_kwargs=off),
        sampling=DEFAULTS,
        stopping=StopConditions(max_tokens=9),
        given=frozenset({"model", "max_tokens", "messages"}),
    )
    assert shows_thoughts(message())


def test_sampling() -> None:
    found = parsed(temperature=0, top_p=0.5, top_k=3, stop_sequences=["a", "b"])
    assert found.sampling == SamplingParams(temperature=0.0, top_p=0.5, top_k=3, min_p=0.05)
    assert found.stopping.stop == ("a", "b")
    assert found.given is not None
    assert {"temperature", "top_p", "top_k", "stop", "max_tokens"} <= found.given
    nulls = parsed(temperature=None, top_p=None, top_k=None, stop_sequences=None)
    assert nulls.sampling == DEFAULTS
    assert nulls.given == frozenset({"model", "max_tokens", "messages"})


def test_no_tokens_only_read_the_prompt_and_very_many_are_a_limit() -> None:
    assert parsed(max_tokens=0).stopping.max_tokens == 0
    assert parsed(max_tokens=10**12).stopping.max_tokens == (1 << 31) - 1


RESULT: Final[list[dict[str, Any]]] = [
    *HI,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]},
]
EFFORT_LOW: Final = {"output_config": {"effort": "low"}}
THINKING: Final[list[tuple[dict[str, Any], int | None, dict[str, Any]]]] = [
    ({"thinking": None}, 0, {"enable_thinking": False}),
    ({"thinking": {"type": "disabled"}}, 0, {"enable_thinking": False}),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, 2000, {"enable_thinking": True}),
    ({"thinking": {"type": "adaptive"}}, None, {}),
    ({"thinking": {"type": "adaptive"}, **EFFORT_LOW}, 1024, {"reasoning_effort": "low"}),
    ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, None, {"reasoning_effort": "max"}),
    ({"thinking": {"type": "between_tools"}}, 0, {"enable_thinking": False}),
    ({"thinking": {"type": "between_tools"}, "messages": RESULT}, None, {"enable_thinking": True}),
    (EFFORT_LOW, 0, {"reasoning_effort": "low", "enable_thinking": False}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "budget", "kwargs"), THINKING)
def test_thinking(body: dict[str, Any], budget: int | None, kwargs: dict[str, Any]) -> None:
    found = prompt(**body)
    assert (found.reasoning_budget, found.template_kwargs) == (budget, kwargs)


def test_thoughts_are_shown_unless_they_are_omitted() -> None:
    assert shows_thoughts(message(thinking={"type": "adaptive", "display": "summarized"}))
    assert not shows_thoughts(message(thinking={"type": "adaptive", "display": "omitted"}))
    assert not shows_thoughts(message(thinking={"type": "enabled", "budget_tokens": 9, "display": "omitted"}))


CHOICES: Final[list[tuple[Any, ToolChoice, bool]]] = [
    (None, ToolChoice("auto"), True),
    ({"type": "auto"}, ToolChoice("auto"), True),
    ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto"), False),
    ({"type": "any"}, ToolChoice("required"), True),
    ({"type": "none"}, ToolChoice("none"), True),
    ({"type": "tool", "name": "ls", "disable_parallel_tool_use": True}, ToolChoice("named", "ls"), False),
]


@pytest.mark.parametrize(("choice", "expected", "parallel"), CHOICES)
def test_tool_choice(choice: Any, expected: ToolChoice, *, parallel: bool) -> None:
    found = prompt(tools=[TOOL], tool_choice=choice)
    assert (found.tool_choice, found.parallel_tool_calls) == (expected, parallel)


def test_tools_of_the_client_are_kept_and_others_left_out() -> None:
    tools: list[dict[str, Any]] = [
        {**TOOL, "description": "Lists.", "strict": True, "cache_control": {"type": "ephemeral"}},
        {**TOOL, "name": "cat", "type": "custom", "input_examples": [{}]},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "bash_20250124", "name": "bash"},
    ]
    found = parsed(tools=tools, mcp_servers=[{"type": "url"}], container="c")
    assert isinstance(found.prompt, ChatPrompt)
    assert found.prompt.tools == (
        Tool(name="ls", description="Lists.", parameters={"type": "object"}, strict=True),
        Tool(name="cat", parameters={"type": "object"}),
    )
    assert found.warnings == (
        "tools[2]: web_search_20250305 is not on this server, and left out",
        "tools[3]: bash_20250124 is not on this server, and left out",
        "mcp_servers: this server has none, and left it out",
        "container: this server has none, and left it out",
    )


@pytest.mark.parametrize("place", [{"output_config": 1}, {"output_format": 1}])
def test_the_form_of_the_answer(place: dict[str, Any]) -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    body: dict[str, Any] = (
        {"output_config": {"format": form}} if "output_config" in place else {"output_format": form}
    )
    assert parsed(**body).constraint == JsonSchemaConstraint({"type": "object"})


def test_what_concerns_only_anthropics_service_is_ignored() -> None:
    parsed(
        cache_control={"type": "ephemeral"}, metadata={"user_id": "{}"}, service_tier="auto", speed="fast",
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, inference_geo="us",
    )  # fmt: skip


REFUSED: Final[list[tuple[dict[str, Any], str]]] = [
    ({"tools": [TOOL, TOOL]}, r"tools\[1\].name: a tool named 'ls'"),
    ({"stop_sequences": [""]}, "stop_sequences: an empty text"),
    ({"stop_sequences": ["a"] * 65}, "the limit is 64"),
    ({"messages": HI * 10_001}, "the limit is 10000"),
    ({"tools": [TOOL] * 513}, "the limit is 512"),
]


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_limits_are_named(body: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parsed(**body)


WRONG: Final[list[dict[str, Any]]] = [
    {"max_tokens": -1}, {"max_tokens": None}, {"temperature": 2.1}, {"top_p": 1.1}, {"top_k": -1}, {"model": None},
    {"messages": [{"role": "tool", "content": ""}]}, {"messages": [{"role": "user", "content": [{"text": "a"}]}]},
    {"messages": [{"role": "user"}]}, {"thinking": {"type": "often"}}, {"tools": [{"name": "a"}]},
    {"tool_choice": {"type": "tool"}}, {"output_config": {"format": {"type": "json_schema"}}}, {"system": 3},
]  # fmt: skip


@pytest.mark.parametrize("body", WRONG)
def test_values_outside_the_schema_are_rejected(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parsed(**body)
