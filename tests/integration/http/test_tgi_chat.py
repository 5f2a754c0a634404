"""Text Generation Inference's chat under /tgi, by huggingface_hub's client."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from huggingface_hub import InferenceClient

from jan_serve.resources import builtin_model
from tests.integration.http.support import payloads, serving_models
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


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path_factory.mktemp("tgi-chat"), model) as server:
        yield server.url()


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


def test_stream_shapes(url: str) -> None:
    events = payloads(chat(url, stream=True, logprobs=True, top_logprobs=2).body)
    assert events[-1] == "[DONE]"
    first = json.loads(events[0])
    keys = ["object", "id", "created", "model", "system_fingerprint", "choices", "usage"]
    assert list(first) == keys
    assert (first["object"], first["id"], first["usage"]) == ("chat.completion.chunk", "", None)
    deltas = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert all(choice["delta"]["role"] == "assistant" for choice in deltas)
    assert [choice["finish_reason"] for choice in deltas[:-1]] == [None] * (len(deltas) - 1)
    entries = [entry for choice in deltas if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert entries
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)


def test_names_of_the_model(url: str) -> None:
    assert chat(url).json()["model"] == "jan-tiny"
    assert chat(url, model="tgi").json()["model"] == "jan-tiny"
    assert chat(url, model="other").json()["model"] == "other"


def test_a_schema_by_value(url: str) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    schema["additionalProperties"] = False
    for form in (
        {"type": "json_object", "value": schema},
        {"type": "json_schema", "value": {"schema": schema}},
    ):
        content = chat(url, response_format=form).json()["choices"][0]["message"]["content"]
        assert json.loads(content)["a"] == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [TOOL], "tool_choice": "nothing"}, "Tool error: Tool with name nothing not found"),
        (
            {"tools": [], "response_format": {"type": "regex", "value": "a"}},
            "Tool error: Grammar and tools are mutually exclusive",
        ),
        (
            {"tools": [TOOL], "tool_choice": "required", "max_tokens": 2},
            "Tool error: Failed to parse generated text",
        ),
        ({"presence_penalty": -2.0}, "`repetition_penalty` must be strictly positive"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "`stop` supports up to 4 stop sequences. Given: 5"),
        ({"messages": []}, "`messages` cannot be empty"),
    ],
    ids=["unknown tool", "both", "cut", "penalty", "stops", "no messages"],
)
def test_what_is_refused(url: str, fields: dict[str, Any], words: str) -> None:
    reply = chat(url, **{"messages": WEATHER, **fields})
    assert reply.status == 422
    assert words in reply.json()["error"]


@pytest.mark.parametrize(
    "fields",
    [{"response_format": {"type": "text"}}, {"logit_bias": {"1": 2}}, {"max_tokens": -1}],
    ids=["format", "bias", "negative"],
)
def test_what_the_framework_refuses(url: str, fields: dict[str, Any]) -> None:
    reply = chat(url, **fields)
    assert (reply.status, reply.headers["content-type"]) == (422, "text/plain; charset=utf-8")
