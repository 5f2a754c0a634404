"""Requests whose prompts are computed elsewhere, or for elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jan_serve.core.events import Completed, GenerationEvent, StatePreserved
from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.request import GenerationRequest, TextPrompt
from jan_serve.errors import PeerFailed, UnsupportedOperation
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.ports import EngineClient
from jan_serve.generation.service import GenerationService
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest, ResumeState, StateKept
from tests.support.fake_client import FakeClient, FakeModels, endings
from tests.unit.generation.support import collect, preparer, service_over

pytestmark = pytest.mark.anyio

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
    yield Chunk(request.id, 0, "A")
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
