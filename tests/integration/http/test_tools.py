"""Tool calls and thoughts over HTTP: the built-in model, and random weights, which write all that a grammar allows."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

from tests.integration.http.support import CHATS, payloads, serving_models
from tests.support.clients.raw_http import post

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["tea", "coffee"]},
        "cups": {"type": "integer", "minimum": 1, "maximum": 9},
        "notes": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
        "when": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
    },
    "required": ["kind", "cups", "when"],
    "additionalProperties": False,
}


def tool(name: str, parameters: dict[str, Any], description: str = "") -> Any:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = [tool("get_weather", WEATHER, "Get the weather in a city"), tool("order", ORDER, "Order a drink")]
ASK: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.fixture(scope="module")
def client(builtin_url: str) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{builtin_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, messages: Any = ASK, **fields: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(model="jan-tiny", messages=messages, temperature=0, **fields)


def calls_of(message: Any) -> list[tuple[str, Any]]:
    return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or ()]


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[dict[str, Any], list[Any]]:
    """The message assembled as clients do it, and the chunks."""
    chunks = list(ask(client, stream=True, **fields))
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": [], "finish": None}
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            message["content"] += delta.content or ""
            message["reasoning"] += getattr(delta, "reasoning_content", None) or ""
            message["finish"] = choice.finish_reason or message["finish"]
            for part in delta.tool_calls or ():
                if part.id:
                    assert part.index == len(message["calls"])
                    message["calls"].append([part.id, part.function.name, ""])
                message["calls"][part.index][2] += part.function.arguments
    return message, chunks


def test_the_model_calls_and_uses_the_result(client: openai.OpenAI) -> None:
    reply = ask(client, tools=TOOLS)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert calls_of(choice.message) == [("get_weather", {"city": "Oslo"})]
    result = {"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": '{"sky": "rain"}'}
    after = ask(client, [*ASK, choice.message, result], tools=TOOLS)
    assert after.choices[0].finish_reason == "stop"
    assert after.choices[0].message.content


def test_a_streamed_call_is_the_whole_one(client: openai.OpenAI) -> None:
    message, chunks = streamed(client, tools=TOOLS, stream_options={"include_usage": True})
    [(call_id, name, arguments)] = message["calls"]
    assert (name, json.loads(arguments)) == ("get_weather", {"city": "Oslo"})
    assert call_id.startswith("call_")
    assert message["finish"] == "tool_calls"
    fragments = [part for c in chunks for choice in c.choices for part in choice.delta.tool_calls or ()]
    assert fragments[0].id == call_id
    assert [part.id for part in fragments[1:]] == [None] * (len(fragments) - 1)
    assert chunks[-1].usage.completion_tokens > 0
    assert chunks[-1].timings["predicted_n"] == chunks[-1].usage.completion_tokens


def test_text_streams_where_no_call_is_made(client: openai.OpenAI) -> None:
    message, _ = streamed(client, messages=[{"role": "user", "content": "Hello!"}], tools=TOOLS)
    assert message["content"]
    assert (message["calls"], message["finish"]) == ([], "stop")


def test_arguments_of_a_free_call_satisfy_the_schema(client: openai.OpenAI) -> None:
    only_rome = tool("get_weather", {**WEATHER, "properties": {"city": {"enum": ["Rome", "Lima"]}}})
    message = ask(client, tools=[only_rome]).choices[0].message
    [(name, arguments)] = calls_of(message)
    assert (name, arguments["city"]) in [("get_weather", "Rome"), ("get_weather", "Lima")]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "order"}),
        ({"type": "function", "function": {"name": "order"}}, {"order"}),
    ],
    ids=["required", "named"],
)
def test_a_call_can_be_forced(client: openai.OpenAI, choice: Any, names: set[str]) -> None:
    hello = [{"role": "user", "content": "Hello!"}]
    reply = ask(client, hello, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=200)
    [(name, arguments)] = calls_of(reply.choices[0].message)
    assert name in names
    jsonschema.validate(arguments, {"get_weather": WEATHER, "order": ORDER}[name])
    assert reply.choices[0].finish_reason == "tool_calls"


def test_no_call_where_none_is_wanted(client: openai.OpenAI) -> None:
    reply = ask(client, tools=TOOLS, tool_choice="none", max_tokens=40)
    assert not reply.choices[0].message.tool_calls
    assert reply.choices[0].message.content


def test_functions_in_the_older_form(client: openai.OpenAI) -> None:
    reply = ask(client, functions=[entry["function"] for entry in TOOLS])
    choice = reply.choices[0]
    assert choice.finish_reason == "function_call"
    assert (choice.message.function_call.name, choice.message.tool_calls) == ("get_weather", None)
    result = {"role": "function", "name": "get_weather", "content": "rain"}
    history = [
        *ASK,
        {"role": "assistant", "content": None, "function_call": choice.message.function_call},
        result,
    ]
    assert ask(client, history).choices[0].message.content


def test_a_schema_and_tools_together(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes", "no"]}}}
    called = ask(client, tools=TOOLS, response_format=form)
    assert called.choices[0].finish_reason == "tool_calls"
    text = ask(client, [{"role": "user", "content": "Hello!"}], tools=TOOLS, response_format=form)
    message = text.choices[0].message
    assert message.tool_calls or json.loads(message.content) in ("yes", "no")


def test_history_with_malformed_arguments(client: openai.OpenAI) -> None:
    broken = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": '},
    }
    history = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [broken]},
        {"role": "tool", "tool_call_id": "call_1", "content": "no such city"},
    ]
    assert ask(client, history, tools=TOOLS, max_tokens=60).choices[0].finish_reason


@pytest.mark.parametrize("seed", range(3))
def test_calls_are_counted_from_0_and_have_ids_of_their_own(random_url: str, seed: int) -> None:
    now = tool("now", {"type": "object", "properties": {}, "additionalProperties": False})
    body = {"messages": ASK, "tools": [now], "tool_choice": "required", "seed": seed, "max_tokens": 200}
    whole = post(random_url, CHATS, body).json()["choices"][0]["message"]["tool_calls"]
    reply = post(random_url, CHATS, {**body, "stream": True})
    deltas = [json.loads(event)["choices"][0]["delta"] for event in payloads(reply.body)[:-1]]
    opened = [part for delta in deltas for part in delta.get("tool_calls", ()) if "id" in part]
    assert [part["index"] for part in opened] == list(range(len(whole)))
    assert len({part["id"] for part in opened}) == len(opened) >= 1


SUM: Any = [{"role": "user", "content": "Think. What is 3 plus 4?"}]


def test_thoughts_come_apart(client: openai.OpenAI) -> None:
    reply = ask(client, SUM, extra_body={"enable_thinking": True})
    message = reply.choices[0].message
    assert "7" in message.reasoning_content
    assert "<think>" not in message.content
    assert "7" in message.content
    assert reply.usage.completion_tokens_details.reasoning_tokens > 3
    parts, _ = streamed(client, messages=SUM, extra_body={"enable_thinking": True})
    assert (parts["reasoning"], parts["content"]) == (message.reasoning_content, message.content)


def test_a_thought_ends_with_its_budget(client: openai.OpenAI) -> None:
    reply = ask(client, SUM, extra_body={"enable_thinking": True, "reasoning_budget": 4})
    assert 4 <= reply.usage.completion_tokens_details.reasoning_tokens <= 6
    assert reply.choices[0].message.content


def test_a_schema_begins_after_the_thought(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer", "minimum": 0}}}
    reply = ask(client, SUM, response_format=form, extra_body={"enable_thinking": True}, max_tokens=60)
    assert json.loads(reply.choices[0].message.content) >= 0
    assert reply.choices[0].message.reasoning_content


def test_a_schema_that_cannot_be_held_leaves_a_warning(builtin_url: str) -> None:
    odd = tool("odd", {"type": "object", "properties": {"x": {"$ref": "https://example.com/x"}}})
    reply = post(builtin_url, CHATS, {"messages": ASK, "tools": [*TOOLS, odd], "temperature": 0})
    assert reply.status == 200
    assert "tool odd" in reply.headers["x-jan-serve-warning"]


@pytest.mark.parametrize("seed", range(8))
def test_random_weights_call_with_valid_arguments(random_url: str, seed: int) -> None:
    body = {
        "messages": ASK,
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": seed % 2 == 0,
        "temperature": 1.5,
        "seed": seed,
        "max_tokens": 150,
    }
    choice = post(random_url, CHATS, body).json()["choices"][0]
    calls = choice["message"]["tool_calls"]
    whole = calls if choice["finish_reason"] == "tool_calls" else calls[:-1]
    for call in whole:
        schema = {"get_weather": WEATHER, "order": ORDER}[call["function"]["name"]]
        jsonschema.validate(json.loads(call["function"]["arguments"]), schema)
    assert calls


@pytest.fixture(scope="module")
def random_url(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[str]:
    folder = tmp_path_factory.mktemp("random")
    with serving_models(folder, exact_llama, flags=("--n-ctx", "2048")) as server:
        yield server.url()
