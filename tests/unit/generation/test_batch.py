"""Several prompts of one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TextDelta, Timings, Usage
from jan_serve.core.request import GenerationRequest, TextPrompt
from jan_serve.errors import EngineCrashed
from jan_serve.generation.batch import generate_batch

pytestmark = pytest.mark.anyio


def requests(*texts: str, n: int = 1) -> list[GenerationRequest]:
    return [GenerationRequest(prompt=TextPrompt(text), n=n, best_of=n) for text in texts]


def text_of(request: GenerationRequest) -> str:
    assert isinstance(request.prompt, TextPrompt)
    return request.prompt.text


async def echo(request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
    text = text_of(request)
    yield Started(model="m", prompt_tokens=len(text))
    for index in range(request.n):
        for letter in text:
            await asyncio.sleep(0)
            yield TextDelta(index, letter)
        yield Finished(index=index, reason="stop", completion_tokens=len(text))
    yield Completed(
        usage=Usage(prompt_tokens=len(text), completion_tokens=request.n * len(text)),
        timings=Timings(decode_s=float(len(text))),
    )


async def test_choices_are_numbered_over_all_prompts_and_counts_are_summed() -> None:
    events = [event async for event in generate_batch(echo, requests("ab", "xyz", n=2))]
    texts = ["", "", "", ""]
    for item in events:
        if isinstance(item, TextDelta):
            texts[item.index] += item.text
    assert texts == ["ab", "ab", "xyz", "xyz"]
    assert events[-1] == Completed(
        usage=Usage(prompt_tokens=5, completion_tokens=10), timings=Timings(decode_s=3.0)
    )
    assert sum(isinstance(item, Completed) for item in events) == 1


async def test_nothing_is_given_before_every_prompt_was_accepted() -> None:
    gate = asyncio.Event()

    async def generate(request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        if text_of(request) == "slow":
            await gate.wait()
        async for event in echo(request):
            yield event

    events = generate_batch(generate, requests("fast", "slow"))
    first = asyncio.ensure_future(anext(events))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not first.done()
    gate.set()
    seen = [await first, *[event async for event in events]]
    assert [isinstance(item, Started) for item in seen[:3]] == [True, True, False]
    assert {item.prompt for item in seen[:2] if isinstance(item, Started)} == {0, 1}


async def test_a_failure_of_one_ends_all() -> None:
    closed: list[str] = []

    async def generate(request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        text = text_of(request)
        try:
            yield Started(model="m", prompt_tokens=1)
            if text == "bad":
                raise EngineCrashed("gone")
            await asyncio.Event().wait()
        finally:
            closed.append(text)

    with pytest.raises(EngineCrashed):
        async for _ in generate_batch(generate, requests("good", "bad", "fine")):
            pass
    assert sorted(closed) == ["bad", "fine", "good"]


async def test_closing_ends_all() -> None:
    closed: list[str] = []

    async def generate(request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        try:
            async for event in echo(request):
                yield event
        finally:
            closed.append(text_of(request))

    events = generate_batch(generate, requests("abc", "def"))
    await anext(events)
    await events.aclose()
    assert sorted(closed) == ["abc", "def"]
