"""Text Generation Inference's chat under /tgi, by huggingface_hub's client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from huggingface_hub import InferenceClient

from tests.integration.http.support import payloads
from tests.support.raw_http import RawResponse, post

PATH = "/tgi/v1/chat/completions"
HELLO: Any = [{"role": "user", "content": "Hello!"}]
WEATHER: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def url(builtin_url: str) -> str:
    return builtin_url


def chat(url: str, messages: Any = HELLO, **fields: Any) -> RawResponse:
    return post(url, PATH, {"messages": messages, "temperature": 0.0, "max_tokens": 40, **fields})


def test_the_client_chats(url: str) -> None:
    client: Any = InferenceClient(base_url=f"{url}/tgi")
    whole = client.chat_completion(HELLO, max_tokens=20, temperature=0.0)
    assert whole.choices[0].message.content
    assert whole.choices[0].finish_reason in ("stop", "length")
    chunks = list(client.chat_completion(HELLO, max_tokens=20, temperature=0.0, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content


def test_the_client_uses_tools(url: str) -> None:
    client: Any = InferenceClient(base_url=f"{url}/tgi")
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        reply = client.chat_completion(
            WEATHER, tools=[TOOL], tool_choice=choice, max_tokens=80, temperature=0.0
        )
        [call] = reply.choices[0].message.tool_calls
        assert call.function.name == "get_weather"
        assert isinstance(json.loads(call.function.arguments)["city"], str)


def test_a_choice_of_tools_may_be_declined(url: str) -> None:
    message = chat(url, tools=[TOOL], max_tokens=120).json()["choices"][0]["message"]
    assert ("content" in message) != ("tool_calls" in message)


def test_a_streamed_call_ends_with_a_reason(url: str) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "stream_options": {"include_usage": True}}
    events = payloads(chat(url, WEATHER, stream=True, max_tokens=80, **fields).body)
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "get_weather"
    parts = [c["choices"][0]["delta"]["tool_calls"][0] for c in chunks[:-2]]
    assert isinstance(json.loads("".join(part["function"]["arguments"] for part in parts))["city"], str)
    assert chunks[-2]["choices"][0]["finish_reason"] in ("stop", "length")
    assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_a_schema_by_value(url: str) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    schema["additionalProperties"] = False
    for form in (
        {"type": "json_object", "value": schema},
        {"type": "json_schema", "value": {"schema": schema}},
    ):
        content = chat(url, response_format=form).json()["choices"][0]["message"]["content"]
        assert json.loads(content)["a"] == 1
