"""Text Generation Inference's native routes: huggingface_hub's clients, and behaviour beyond its documents."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from huggingface_hub import InferenceClient

from tests.support.clients.raw_http import RawResponse, get, post
from tests.support.watermark import z_score

HELLO = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def url(builtin_url: str) -> str:
    return builtin_url


@pytest.fixture(params=["", "/tgi"], ids=["root", "tgi"])
def base(url: str, request: pytest.FixtureRequest) -> str:
    return f"{url}{request.param}"


def call(base: str, path: str, **fields: Any) -> RawResponse:
    root, _, prefix = base.partition("/tgi")
    return post(root, ("/tgi" if base.endswith("/tgi") else prefix) + path, fields)


def test_the_client_gets_text(base: str) -> None:
    client = InferenceClient(base)
    text = client.text_generation(HELLO, max_new_tokens=12, return_full_text=False)
    assert text
    assert client.text_generation(HELLO, max_new_tokens=12) == HELLO + text
    whole: Any = client.text_generation(HELLO, max_new_tokens=12, details=True, return_full_text=True)
    assert whole.generated_text == HELLO + text
    details = whole.details
    assert details.generated_tokens == len(details.tokens)
    assert details.finish_reason in ("eos_token", "length")
    assert details.seed is None
    assert "".join(token.text for token in details.tokens if not token.special) == text


def test_the_client_gets_a_stream(base: str) -> None:
    client: Any = InferenceClient(base)
    fields: Any = {"max_new_tokens": 12, "return_full_text": False}
    whole = client.text_generation(HELLO, **fields)
    events: list[Any] = list(client.text_generation(HELLO, **fields, stream=True, details=True))
    assert "".join(event.token.text for event in events if not event.token.special) == whole
    assert [event.index for event in events] == list(range(1, len(events) + 1))
    assert [event.generated_text for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1].generated_text == whole
    assert events[-1].details.generated_tokens == len(events)


def test_sampling_is_seeded_and_the_seed_reported(base: str) -> None:
    client = InferenceClient(base)
    drawn: Any = client.text_generation(
        HELLO, max_new_tokens=20, do_sample=True, details=True, temperature=1.5
    )
    assert isinstance(drawn.details.seed, int)
    again = client.text_generation(
        HELLO, max_new_tokens=20, do_sample=True, temperature=1.5, seed=drawn.details.seed
    )
    assert again == drawn.generated_text


def test_a_grammar_holds(base: str) -> None:
    # As TGI's guide writes them: `properties` alone make an object, and one without other members.
    schema = {"properties": {"name": {"enum": ["a", "b"]}}, "required": ["name"]}
    generate: Any = InferenceClient(base).text_generation
    text = generate(
        HELLO, max_new_tokens=60, grammar={"type": "json", "value": schema}, return_full_text=False
    )
    assert json.loads(text) in ({"name": "a"}, {"name": "b"})
    pattern = {"type": "regex", "value": "[0-9]{3}x"}
    assert generate(HELLO, grammar=pattern, max_new_tokens=20, return_full_text=False)[3:] == "x"


def test_facts(url: str) -> None:
    for base in (url, f"{url}/tgi"):
        info: Any = InferenceClient(provider="hf-inference").get_endpoint_info(model=base)
        assert info["model_id"] == "jan-tiny"
        assert info["max_input_tokens"] == info["max_total_tokens"] - 1
        assert {"max_input_length", "waiting_served_ratio", "router"} <= info.keys()
    health = get(url, "/tgi/health")
    assert (health.status, health.body) == (200, b"")
    assert get(url, "/ping").status == 200


def test_stop_strings_stay(base: str) -> None:
    fields = {"max_new_tokens": 20, "details": True}
    tokens = call(base, "/generate", inputs=HELLO, parameters=fields).json()["details"]["tokens"]
    stop = tokens[0]["text"] + tokens[1]["text"]
    body = call(base, "/generate", inputs=HELLO, parameters={**fields, "stop": ["zzz", stop[1:]]}).json()
    assert body["generated_text"] == stop
    assert body["details"]["finish_reason"] == "stop_sequence"
    assert [token["id"] for token in body["details"]["tokens"]] == [token["id"] for token in tokens[:2]]


def test_a_watermark_is_found_again(url: str) -> None:
    found: list[float] = []
    for watermark in (True, False):
        # A high temperature, since a confident model leaves no room for a watermark.
        fields = {
            "max_new_tokens": 200,
            "details": True,
            "temperature": 3.0,
            "seed": 1,
            "watermark": watermark,
        }
        ids: list[int] = []
        for start in "abcdefgh":
            body = call(url, "/generate", inputs=start, parameters=fields).json()
            ids += [token["id"] for token in body["details"]["tokens"]]
        [model] = [entry for entry in get(url, "/models").json()["data"] if entry["id"] == "jan-tiny"]
        found.append(z_score(ids, model["meta"]["n_vocab"]))
    marked, plain = found
    assert marked > 3
    assert plain < marked


def test_truncation_keeps_the_end(base: str) -> None:
    fields = {"max_new_tokens": 1, "truncate": 4, "return_full_text": True}
    reply = call(base, "/generate", inputs="one two three four five six seven", parameters=fields)
    assert reply.headers["x-prompt-tokens"] == "4"
    assert reply.json()["generated_text"].startswith("one two three")


def test_absent_parameters_sample_and_empty_ones_do_not(base: str) -> None:
    greedy = {call(base, "/generate", inputs=HELLO, parameters={}).body for _ in range(3)}
    assert len(greedy) == 1
    assert call(base, "/generate", inputs=HELLO).status == 200


def test_tokens_cover_the_bytes_of_the_text(base: str) -> None:
    text = "Hello wörld, 你好"
    tokens = call(base, "/tokenize", inputs=text).json()
    covered = [token for token in tokens if token["stop"]]
    assert covered[0]["start"] == 0
    assert covered[-1]["stop"] == len(text.encode())
    assert all(one["stop"] == two["start"] for one, two in itertools.pairwise(covered))


PATH = "/tgi/v1/chat/completions"
HELLO_CHAT: Any = [{"role": "user", "content": "Hello!"}]
WEATHER: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def chat(url: str, messages: Any = HELLO_CHAT, **fields: Any) -> RawResponse:
    return post(url, PATH, {"messages": messages, "temperature": 0.0, "max_tokens": 40, **fields})


def test_the_client_chats(url: str) -> None:
    client: Any = InferenceClient(base_url=f"{url}/tgi")
    whole = client.chat_completion(HELLO_CHAT, max_tokens=20, temperature=0.0)
    assert whole.choices[0].message.content
    assert whole.choices[0].finish_reason in ("stop", "length")
    chunks = list(client.chat_completion(HELLO_CHAT, max_tokens=20, temperature=0.0, stream=True))
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


def test_a_schema_by_value(url: str) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    schema["additionalProperties"] = False
    for form in (
        {"type": "json_object", "value": schema},
        {"type": "json_schema", "value": {"schema": schema}},
    ):
        content = chat(url, response_format=form).json()["choices"][0]["message"]["content"]
        assert json.loads(content)["a"] == 1
