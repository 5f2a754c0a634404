from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from jan_serve.core.constraint import Constraint, JsonObjectConstraint, JsonSchemaConstraint
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, GenerationRequest, SamplingParams
from jan_serve.dialects.openai.responses.parse import ParsedResponse, response_request
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, InputItem
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import REASONING_BUDGETS
from jan_serve.errors import InvalidRequest

ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


def parsed(previous: list[Any] | None = None, **fields: Any) -> ParsedResponse:
    body = CreateResponseRequest.model_validate({"input": "Hi"} | fields)
    return response_request(body, [ITEM.validate_python(item) for item in previous or ()], body.input)


def generation(**fields: Any) -> GenerationRequest:
    return parsed(**fields).generation


def prompt(previous: list[Any] | None = None, **fields: Any) -> ChatPrompt:
    found = parsed(previous, **fields).generation.prompt
    assert isinstance(found, ChatPrompt)
    return found


def test_defaults_are_those_of_a_chat() -> None:
    assert generation() == GenerationRequest(
        prompt=ChatPrompt(messages=(Message(role="user", content="Hi"),)),
        sampling=SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1),
        given=frozenset({"input"}),
    )


def test_null_is_absent_in_every_field() -> None:
    fields = dict.fromkeys(name for name in CreateResponseRequest.model_fields if name != "input")
    assert generation(**fields) == generation()


def test_fields_that_nobody_knows_are_ignored() -> None:
    more = {
        "client_metadata": {"a": "b"},
        "service_tier": "auto",
        "stream_options": {"include_obfuscation": False},
    }
    assert generation(**more).prompt == generation().prompt


def test_sampling_and_limits() -> None:
    request = generation(
        model="m", temperature=0, top_p=0.5, max_output_tokens=7, keep_alive="5m", seed=3, stop="x"
    )
    assert (request.model, request.ttl_s) == ("m", 300.0)
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.seed) == (0, 0.5, 3)
    assert (request.stopping.max_tokens, request.stopping.stop) == (7, ("x",))
    assert {"temperature", "top_p", "max_tokens", "seed", "stop"} <= (request.given or frozenset())


def test_instructions_come_first_and_are_of_this_request() -> None:
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [(message.role, message.content) for message in prompt(before, instructions="Be kind.").messages] == [
        ("system", "Be kind."), ("user", "a"), ("assistant", "b"), ("user", "Hi"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ({}, None),
        ({"verbosity": "low"}, None),
        ({"format": {"type": "text"}}, None),
        ({"format": {"type": "json_object"}}, JsonObjectConstraint()),
        (
            {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "object"}}},
            JsonSchemaConstraint({"type": "object"}),
        ),
    ],
)
def test_formats(text: Any, expected: Constraint | None) -> None:
    assert generation(text=text).constraint == expected


@pytest.mark.parametrize(
    ("reasoning", "budget", "kwargs"),
    [
        (None, None, {}),
        ({"summary": "auto"}, None, {}),
        ({"effort": "low"}, REASONING_BUDGETS["low"], {"reasoning_effort": "low"}),
        ({"effort": "max"}, None, {"reasoning_effort": "max"}),
        ({"effort": "none"}, 0, {"reasoning_effort": "none", "enable_thinking": False}),
    ],
)
def test_reasoning(reasoning: Any, budget: int | None, kwargs: dict[str, Any]) -> None:
    found = prompt(reasoning=reasoning)
    assert (found.reasoning_budget, found.template_kwargs) == (budget, kwargs)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"top_logprobs": 3}, 3),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
        ({"include": ["reasoning.encrypted_content", "what.comes.later"]}, None),
    ],
)
def test_logprobs(fields: dict[str, Any], expected: int | None) -> None:
    assert generation(**fields).logprobs == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"background": True, "store": False}, "store"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": {str(number): "v" for number in range(17)}}, "metadata"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"temperature": 1e9}, "temperature"),
    ],
)
def test_unservable_files_are_rejected(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**fields)
    assert caught.value.param == param


WRONG: list[dict[str, Any]] = [
    {"input": 3},
    {"input": None},
    {"input": [{"type": "mesage", "role": "user", "content": "a"}]},
    {"input": [{"content": "a"}]},
    {"input": [{"role": "tool", "content": "a"}]},
    {"input": [{"role": "user", "content": [{"type": "video", "url": "a"}]}]},
    {"input": [{"type": ["message"], "role": "user", "content": "a"}]},
    {"max_output_tokens": 0},
    {"max_output_tokens": True},
    {"tools": [{}]},
    {"tools": [{"type": "function"}]},
    {"tool_choice": "sometimes"},
    {"tool_choice": {"name": "f"}},
    {"top_logprobs": -1},
    {"top_logprobs": limits.MAX_LOGPROBS + 1},
    {"truncation": "some"},
    {"metadata": {"a": 1}},
    {"stream": "yes"},
]


@pytest.mark.parametrize("fields", WRONG)
def test_wrong_types_break_the_schema(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parsed(**fields)


def test_what_is_not_done_as_asked_is_told() -> None:
    assert parsed().generation.warnings == ()
    [truncation] = parsed(truncation="auto").generation.warnings
    assert "truncation" in truncation
    [item, tool] = parsed(
        input=[{"role": "user", "content": "a"}, {"type": "web_search_call", "id": "ws"}],
        tools=[{"type": "web_search"}],
    ).generation.warnings
    assert (item[:9], tool[:8]) == ("input[1]:", "tools[0]")
