from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from jan_serve.core.cache_salt import cache_salt
from jan_serve.core.events import Finished, GenerationEvent, TextDelta
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, GenerationRequest, TextPrompt
from jan_serve.errors import Draining, ModelNotFound
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.scoring.decisions import Option, Question, decide
from jan_serve.ipc.messages import Accepted, EngineEvent, EngineRequest
from tests.support.fake_client import FakeClient, FakeModels, saying
from tests.unit.generation.support import service_over

pytestmark = pytest.mark.anyio


async def answer(model: LeasedModel, text: str) -> list[GenerationEvent]:
    return [event async for event in model.generate(GenerationRequest(prompt=TextPrompt(text)))]


async def test_all_steps_of_a_request_share_one_lease() -> None:
    models = FakeModels(FakeClient(script=saying("Hi")))
    with service_over(models) as service:
        async with service.open("fake") as model:
            assert (model.name, model.facts, models.held) == ("fake", models.clients[0].facts, 1)
            text = await model.chat_text(ChatPrompt(messages=(Message(role="user", content="é"),)))
            assert "é" in text
            tokens = (await model.tokenize("é", add_special=False)).tokens
            assert tokens == [0xC3, 0xA9]
            assert await model.detokenize(tokens) == "é"
            answers = await asyncio.gather(answer(model, "a"), answer(model, "b"))
            assert models.held == 1
    for events in answers:
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hi"]
        assert isinstance(events[-2], Finished)
    assert (models.leased, models.held) == (["fake"], 0)


async def test_one_step_leases_and_returns() -> None:
    models = FakeModels()
    with service_over(models) as service:
        counted = partial(LeasedModel.count, prompt=ChatPrompt(messages=(Message(role="user", content="é"),)))
        assert await service.with_model("fake", counted) > 1
        assert await service.facts(None) == ("fake", models.clients[0].facts)
        with pytest.raises(ModelNotFound):
            await service.facts("b")
    assert (models.leased, models.held) == (["fake", None, "b"], 0)


async def test_answers_side_by_side_end_with_the_request() -> None:
    begun = asyncio.Semaphore(0)

    async def endless(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 1)
        begun.release()
        await asyncio.Event().wait()

    running = RunningRequests(None)
    models = FakeModels(FakeClient(script=endless))
    with service_over(models, running) as service:
        async with service.open(None) as model:
            answering = [asyncio.create_task(answer(model, text)) for text in "ab"]
            async with asyncio.timeout(30):
                await begun.acquire()
                await begun.acquire()
            running.expire_all(Draining("first"))
            running.expire_all(Draining("second"))
            results = await asyncio.gather(*answering, return_exceptions=True)
            assert [type(result) for result in results] == [Draining, Draining]
    assert (models.held, len(running)) == (0, 0)


async def test_all_that_is_cached_has_the_salt_of_the_caller() -> None:
    """Prompts, and the questions of decisions."""
    client = FakeClient()
    token = cache_salt.set("of a key")
    try:
        with service_over(FakeModels(client)) as service:
            [_ async for _ in service.generate(GenerationRequest(prompt=TextPrompt("a")))]
            asked = [Question("b", (Option("c"), Option("d")))]
            await service.with_model(None, partial(decide, state="e", questions=asked))
    finally:
        cache_salt.reset(token)
    assert [request.cache_salt for request in (*client.requests, *client.weighed)] == ["of a key"] * 2
