"""LiteLLM's documented features, through each of its providers that speaks a protocol of ours.

Runs in the environment of the clients, against the server of JAN_SERVE_URL.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import pytest

URL = os.environ["JAN_SERVE_URL"]
MODEL = "jan-tiny"
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
HELLO = [{"role": "user", "content": "Hello!"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Get the weather in a city", "parameters": SCHEMA},
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
BASES = {
    **dict.fromkeys(
        ("openai", "hosted_vllm", "lm_studio", "llamafile", "custom_openai", "litellm_proxy"), f"{URL}/v1"
    ),
    "anthropic": URL,
    "ollama": URL,
    "ollama_chat": URL,
}
PROVIDERS = tuple(BASES)
CALLERS = tuple(provider for provider in PROVIDERS if provider != "ollama")


def options(provider: str, **more: Any) -> dict[str, Any]:
    return {
        "model": f"{provider}/{MODEL}",
        "api_base": BASES[provider],
        "api_key": "none",
        "temperature": 0,
        "max_tokens": 256,
        "num_retries": 0,
        **more,
    }


def complete(provider: str, messages: list[Any], **more: Any) -> Any:
    return litellm.completion(messages=messages, **options(provider, **more))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_text(provider: str) -> None:
    found = complete(provider, HELLO)
    assert found.choices[0].message.content
    assert found.choices[0].finish_reason == "stop"
    assert found.usage.prompt_tokens > 0
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_has_the_same_text_and_its_usage(provider: str) -> None:
    parts = list(complete(provider, HELLO, stream=True, stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == complete(provider, HELLO).choices[0].message.content
    assert [part.usage for part in parts if getattr(part, "usage", None)][-1].completion_tokens > 0
    rebuilt: Any = litellm.stream_chunk_builder(parts, messages=HELLO)
    assert rebuilt.choices[0].message.content == text
    assert rebuilt.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_asynchronous_stream(provider: str) -> None:
    async def text() -> str:
        parts: Any = await litellm.acompletion(messages=HELLO, **options(provider, stream=True))
        return "".join([part.choices[0].delta.content or "" async for part in parts])

    assert asyncio.run(text())


@pytest.mark.parametrize("provider", CALLERS)
def test_a_tool_is_called_and_its_result_read(provider: str) -> None:
    found = complete(provider, QUESTION, tools=[TOOL])
    [call] = found.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
    assert found.choices[0].finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": '{"sky": "rain"}'}
    turns = [*QUESTION, found.choices[0].message.model_dump(), result]
    assert complete(provider, turns, tools=[TOOL]).choices[0].message.content


@pytest.mark.parametrize("provider", CALLERS)
def test_a_streamed_tool_call_is_whole(provider: str) -> None:
    parts = list(complete(provider, QUESTION, tools=[TOOL], stream=True))
    rebuilt: Any = litellm.stream_chunk_builder(parts, messages=QUESTION)
    [call] = rebuilt.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
    assert rebuilt.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}, "none"]
)
@pytest.mark.parametrize("provider", CALLERS)
def test_tool_choice(provider: str, choice: Any) -> None:
    message = complete(provider, QUESTION, tools=[TOOL], tool_choice=choice).choices[0].message
    assert bool(message.tool_calls) is (choice != "none")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_schema_binds_the_answer(provider: str) -> None:
    found = complete(provider, [{"role": "user", "content": "A city as JSON"}], response_format=FORM)
    assert set(json.loads(found.choices[0].message.content)) == {"city"}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stop_text_and_a_limit(provider: str) -> None:
    text = complete(provider, HELLO).choices[0].message.content
    stop = text[3:6]
    assert complete(provider, HELLO, stop=[stop]).choices[0].message.content == text[: text.index(stop)]
    assert complete(provider, HELLO, max_tokens=2).choices[0].finish_reason == "length"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_prompt_that_is_too_long_is_a_bad_request(provider: str) -> None:
    with pytest.raises(litellm.BadRequestError):
        complete(provider, [{"role": "user", "content": "word " * 9000}])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_unknown_model_is_not_found(provider: str) -> None:
    with pytest.raises(litellm.NotFoundError):
        complete(provider, HELLO, model=f"{provider}/absent:1b")


@pytest.mark.parametrize("provider", ["hosted_vllm", "anthropic", "ollama_chat"])
def test_a_thought_is_apart(provider: str) -> None:
    turns = [{"role": "user", "content": "Think: what is 2+3?"}]
    budget = {"type": "enabled", "budget_tokens": 1024}
    named = ["thinking"]  # LiteLLM knows by the name which models think
    on = (
        {"thinking": budget, "allowed_openai_params": named}
        if provider == "anthropic"
        else {"reasoning_effort": "low"}
    )
    message = complete(provider, turns, temperature=1, max_tokens=2000, **on).choices[0].message
    assert message.reasoning_content
    assert message.content


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic", "ollama_chat"])
def test_a_picture_is_seen(provider: str) -> None:
    red = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CABzGMSuNDALgpY53qsYPpAA"
        "AAAElFTkSuQmCC"
    )
    parts = [{"type": "text", "text": "What do you see?"}, {"type": "image_url", "image_url": {"url": red}}]
    assert complete(provider, [{"role": "user", "content": parts}]).choices[0].message.content


def test_log_probabilities_and_several_answers() -> None:
    found = complete("openai", HELLO, logprobs=True, top_logprobs=2, n=2)
    assert [choice.index for choice in found.choices] == [0, 1]
    assert len(found.choices[0].logprobs.content[0].top_logprobs) == 2


@pytest.mark.parametrize("provider", ["text-completion-openai", "hosted_vllm"])
def test_a_completion(provider: str) -> None:
    found: Any = litellm.text_completion(
        model=f"{provider}/{MODEL}", prompt="Once", api_base=f"{URL}/v1", api_key="none", max_tokens=5
    )
    assert found.choices[0].text


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "ollama"])
def test_embeddings(provider: str) -> None:
    base = URL if provider == "ollama" else f"{URL}/v1"
    found: Any = litellm.embedding(
        model=f"{provider}/{MODEL}", input=["a", "b"], api_base=base, api_key="none"
    )
    assert [len(each["embedding"]) > 0 for each in found.data] == [True, True]
    assert found.usage.prompt_tokens > 0


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama_chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_interface_of_responses(provider: str, stream: bool) -> None:
    found: Any = litellm.responses(
        model=f"{provider}/{MODEL}", input="Hello!", api_base=BASES[provider], api_key="none", stream=stream
    )
    if stream:
        found = list(found)[-1].response
    assert found.output[-1].content[0].text


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama_chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_interface_of_messages(provider: str, stream: bool) -> None:
    if stream:
        pytest.importorskip("fastapi", reason="LiteLLM needs FastAPI for it")

    async def ask() -> Any:
        found: Any = await litellm.anthropic.messages.acreate(
            model=f"{provider}/{MODEL}", messages=HELLO, max_tokens=64, api_base=BASES[provider], api_key="none",
            stream=stream,
        )  # fmt: skip
        return [part async for part in found] if stream else found

    found = asyncio.run(ask())
    if stream:
        text = "".join(part.decode() if isinstance(part, bytes) else json.dumps(part) for part in found)
        assert text.index("message_start") < text.index("text_delta") < text.index("message_stop")
    else:
        assert found["content"][-1]["text"]


def test_documents_are_ranked() -> None:
    found: Any = litellm.rerank(
        model=f"hosted_vllm/{MODEL}", query="a", documents=["b", "c"], api_base=URL, api_key="none"
    )
    assert len(found.results) == 2


def test_a_router_goes_over_its_deployments() -> None:
    router = litellm.Router(
        model_list=[
            {"model_name": "tiny", "litellm_params": options(provider)}
            for provider in ("openai", "ollama_chat")
        ]
    )
    for _ in range(4):
        answer: Any = router.completion(model="tiny", messages=HELLO)
        assert answer.choices[0].message.content
