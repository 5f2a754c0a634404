"""These tests run the steps of a request under one lease:

which choices win, and prompts computed elsewhere or for elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from jan_serve.core.caller import cache_salt
from jan_serve.core.events import Completed, Finished, GenerationEvent, StatePreserved, TextDelta, TokenInfo
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, GenerationRequest, TextPrompt
from jan_serve.errors import Draining, ModelNotFound, PeerFailed, UnsupportedOperation
from jan_serve.generation.answer import BestOf
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.decisions import Option, Question, decide
from jan_serve.generation.ports import EngineClient
from jan_serve.generation.service import GenerationService, LeasedModel
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest, ResumeState, StateKept
from tests.support.engine.fake_client import FakeClient, FakeModels, endings, saying
from tests.unit.generation.support import collect, preparer, service_over

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
            async with asyncio.timeout(60):
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


TOKEN = TokenInfo(1, b"x")


@pytest.mark.parametrize(
    ("n", "scores", "winners"),
    [
        (1, [-3.0, -1.0, -2.0], [1]),
        (2, [-3.0, -1.0, -2.0], [1, 2]),
        (2, [-1.0, -1.0, -1.0], [0, 1]),
        (2, [None, -9.0, None], [1, 0]),
        (3, [-2.0, -1.0], [1, 0]),
    ],
)
def test_the_highest_mean_wins_and_ties_keep_their_order(
    n: int, scores: list[float | None], winners: list[int]
) -> None:
    best = BestOf(n, keep_tokens=False)
    for index, score in enumerate(scores):
        best.add(TextDelta(index, f"{index}"))
        best.add(Finished(index=index, reason="stop", mean_logprob=score))
    texts = [(event.index, event.text) for event in best.winners() if isinstance(event, TextDelta)]
    assert texts == list(enumerate(map(str, winners)))


@pytest.mark.parametrize("keep", [True, False])
def test_the_events_of_a_choice_stay_together_and_in_order(keep: bool) -> None:
    best = BestOf(1, keep_tokens=keep)
    events = [TextDelta(1, "a", (TOKEN,)), TextDelta(0, "z", (TOKEN,)), TextDelta(1, "b", (TOKEN,))]
    for event in events:
        best.add(event)
    best.add(Finished(index=0, reason="stop", mean_logprob=-2.0))
    best.add(Finished(index=1, reason="length", mean_logprob=-1.0))
    tokens = (TOKEN,) if keep else ()
    assert list(best.winners()) == [
        TextDelta(0, "a", tokens),
        TextDelta(0, "b", tokens),
        Finished(index=0, reason="length", mean_logprob=-1.0),
    ]


KEEP = GenerationRequest(prompt=TextPrompt("once"), keep_state=True)
RESUME = GenerationRequest(
    prompt=TextPrompt("once"), resume=RemoteState(engine="http://p", session=3, next_token=65)
)


class FakePeers:
    """Other servers that give `data`, or fail."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.kept: list[int] = []

    def keep(self, owner: EngineClient, state: int) -> int:
        self.kept.append(state)
        return 40 + len(self.kept)

    async def fetch(self, wanted: RemoteState, taker: EngineClient, state: int) -> None:
        assert isinstance(taker, FakeClient)
        taker.states[state] = b"part"
        if self.failure is not None:
            raise self.failure


async def keeping(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    yield Accepted(request.id, 4)
    yield StateKept(id=request.id, tokens=4, next_token=65)
    yield Chunk(0, "A", id=request.id)
    for event in endings(request, 1):
        yield event


async def generate(client: FakeClient, peers: FakePeers, request: GenerationRequest) -> list[GenerationEvent]:
    service = GenerationService(FakeModels(client), preparer(), RunningRequests(None), peers)
    return await collect(service, request)


async def test_a_kept_state_is_handed_over() -> None:
    client, peers = FakeClient(script=keeping), FakePeers()
    client.states[1] = b"in the worker"
    events = await generate(client, peers, KEEP)
    assert client.requests[0].keep_state
    assert StatePreserved(handle=41, tokens=4, next_token=65) in events
    assert isinstance(events[-1], Completed)
    assert peers.kept == [client.requests[0].id]
    assert client.states == {1: b"in the worker"}, "it is no longer this request's to drop"


async def test_a_state_that_nobody_took_over_is_dropped() -> None:
    client, peers = FakeClient(), FakePeers()
    client.states[1] = b"in the worker"
    await generate(client, peers, KEEP)
    assert client.requests[0].id == 1
    assert (client.states, peers.kept) == ({}, [])


async def test_what_was_fetched_is_resumed_and_dropped_in_the_end() -> None:
    client, peers = FakeClient(), FakePeers()
    await generate(client, peers, RESUME)
    resume = client.requests[0].resume
    assert isinstance(resume, ResumeState)
    assert resume.token == 65 and resume.state != client.requests[0].id
    assert client.states == {}


async def test_a_failed_fetch_reaches_no_engine_and_leaves_nothing() -> None:
    client = FakeClient()
    with pytest.raises(PeerFailed):
        await generate(client, FakePeers(PeerFailed("cut")), RESUME)
    assert (client.requests, client.states) == ([], {})


async def test_a_service_without_other_servers_refuses() -> None:
    for request in (KEEP, RESUME):
        with service_over(FakeModels()) as service, pytest.raises(UnsupportedOperation):
            await collect(service, request)
