"""OpenAI's own client over HTTP for every route of Jan's API, with fake engines in real worker processes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.support.engines import fake_manager
from tests.support.fronts import live_server
from tests.support.processes import until

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def openai_client(folder: Path, **settings: Any) -> AsyncGenerator[AsyncOpenAI]:
    async with (
        fake_manager(folder) as manager,
        live_server(manager, **settings) as port,
        AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[AsyncOpenAI]:
    async with openai_client(tmp_path) as client:
        yield client


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": f"!say {text}"}]


async def test_chat(client: AsyncOpenAI) -> None:
    reply = await client.chat.completions.create(
        model="gpt-4o", messages=say("Hello."), logprobs=True, top_logprobs=2, n=2
    )
    assert [choice.message.content for choice in reply.choices] == ["Hello.", "Hello."]
    assert reply.model == "gpt-4o"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 12
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert bytes(byte for token in logprobs.content for byte in token.bytes or []) == b"Hello."


async def test_chat_stream(client: AsyncOpenAI) -> None:
    text, usage, reasons = "", None, list[str]()
    stream = await client.chat.completions.create(
        model="m", messages=say("Hello."), stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert (text, reasons) == ("Hello.", ["stop"])
    assert usage is not None
    assert usage.completion_tokens == 6


async def test_the_clients_own_stream_helper(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="m", messages=say("Hello.")) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.content == "Hello."


async def test_completions(client: AsyncOpenAI) -> None:
    reply = await client.completions.create(model="m", prompt=["!say a", "!say b"], logprobs=1, echo=True)
    assert [choice.text for choice in reply.choices] == ["!say aa", "!say bb"]
    stream = await client.completions.create(model="m", prompt="!say abc", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "abc"


async def test_embeddings_come_as_base64_by_default(client: AsyncOpenAI) -> None:
    reply = await client.embeddings.create(model="m", input=["a", "b"], dimensions=3)
    assert [entry.index for entry in reply.data] == [0, 1]
    assert all(len(entry.embedding) == 3 for entry in reply.data)
    floats = await client.embeddings.create(
        model="m", input=["a", "b"], dimensions=3, encoding_format="float"
    )
    for left, right in zip(reply.data, floats.data, strict=True):
        assert left.embedding == pytest.approx(right.embedding)
        assert math.hypot(*left.embedding) == pytest.approx(1.0, abs=1e-6)


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["fake"]
    assert (await client.models.retrieve("fake")).id == "fake"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_errors_have_the_clients_classes(client: AsyncOpenAI, tmp_path: Path) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="m", prompt="!fail context_length_exceeded", stream=stream)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        assert "4096" in caught.value.message
    with pytest.raises(openai.RateLimitError):
        await client.completions.create(model="m", prompt="!fail overloaded")
    with pytest.raises(openai.UnprocessableEntityError) as invalid:
        await client.completions.create(model="m", prompt="a", top_p=7)
    assert (invalid.value.param, invalid.value.code) == ("top_p", "validation_error")
    async with openai_client(tmp_path, api_keys=("k",)) as locked:
        with pytest.raises(openai.AuthenticationError):
            await locked.models.list()


@pytest.mark.parametrize("signal", ["SEGV", "ABRT", "KILL"])
async def test_a_crash_while_streaming_is_one_error_and_the_next_request_is_served(
    client: AsyncOpenAI, signal: str
) -> None:
    seen: list[str] = []
    stream = await client.completions.create(model="m", prompt=f"!die-after 3 {signal}", stream=True)
    with pytest.raises(openai.APIError) as caught:
        async for chunk in stream:
            seen.append(chunk.choices[0].text)
    assert "".join(seen) == "0 1 2 "
    assert caught.value.code == "engine_crashed"
    assert (await client.completions.create(model="m", prompt="!say back")).choices[0].text == "back"


async def test_a_crash_before_an_answer_is_a_503_with_retry_after(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await client.completions.create(model="m", prompt="!die SEGV")
    assert (caught.value.status_code, caught.value.code) == (503, "engine_crashed")
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_a_full_queue_is_429_and_a_client_that_leaves_frees_its_place(tmp_path: Path) -> None:
    from jan_serve.supervisor.limits import ManagerLimits

    async with (
        fake_manager(tmp_path, limits=ManagerLimits(max_queue=1)) as manager,
        live_server(manager) as port,
        AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0) as client,
    ):
        streams: list[Any] = []
        with pytest.raises(openai.RateLimitError) as caught:
            for _ in range(50):
                streams.append(await client.completions.create(model="m", prompt="!forget", stream=True))
        assert caught.value.code == "overloaded"
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
        await streams[0].close()
        await until(lambda: manager.snapshot().models[0].leases < len(streams), 5.0)
        streams.append(await client.completions.create(model="m", prompt="!forget", stream=True))
        for stream in streams[1:]:
            await stream.close()
