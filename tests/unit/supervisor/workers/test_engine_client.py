"""Routing between requests and one worker, over a pipe that the test plays."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest

from jan_serve.core.caller import client
from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.events import Timings
from jan_serve.errors import (
    ContextLengthExceeded,
    Draining,
    EngineCrashed,
    EngineFailure,
    EngineStalled,
    GrammarTooComplex,
    InvalidRequest,
    JanServeError,
    ProtocolError,
)
from jan_serve.ipc.channel import REQUESTS
from jan_serve.ipc.messages import (
    AbortRequest,
    Accepted,
    Chunk,
    DetokenizeRequest,
    Embedded,
    EmbedRequest,
    EngineEvent,
    EngineRequest,
    EngineSettings,
    Failed,
    RequestCompleted,
    SequenceFinished,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerRequest,
)
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.watchdog import Stall
from jan_serve.supervisor.workers.worker_process import WorkerEnd
from tests.support.engine.answers import events_of
from tests.support.engine.fake_vocabulary import facts_of

pytestmark = pytest.mark.anyio

DONE = RequestCompleted(id=1, prompt_tokens=3, completion_tokens=4, cached_tokens=0, timings=Timings())


CRASH = WorkerEnd(requested=False, status="signal SIGSEGV", words="last words")


class PlayedWorker:
    """The sending half of a WorkerProcess, which records the requests. gone: it has ended."""

    def __init__(self) -> None:
        self.sent: list[WorkerRequest] = []
        self.gone = False

    async def send(self, request: WorkerRequest) -> None:
        REQUESTS.encode(request)
        if self.gone:
            raise ConnectionError
        self.sent.append(request)
        await asyncio.sleep(0)

    def send_nowait(self, request: WorkerRequest) -> None:
        self.sent.append(request)


class Played:
    """A client with its played worker."""

    def __init__(self) -> None:
        self.now = 0.0
        self.worker = PlayedWorker()
        self.client = WorkerEngineClient(
            "tiny", facts_of("tiny", EngineSettings()), cast(Any, self.worker), lambda: self.now
        )

    def request(self, text: str = "hello", *, grammar: bool = False) -> EngineRequest:
        guide = Guide(grammar=CompiledGrammar('start: "a"')) if grammar else None
        return EngineRequest(cache_salt="", id=self.client.next_id(), prompt=(text,), guide=guide)

    async def read(self, request: EngineRequest) -> list[EngineEvent]:
        return [event async for event in events_of(self.client, request)]

    def aborted(self) -> list[int]:
        return [request.id for request in self.worker.sent if isinstance(request, AbortRequest)]


def answer(request_id: int, text: str = "a") -> tuple[EngineEvent, ...]:
    return (
        Accepted(request_id, 5),
        Chunk(0, text, id=request_id),
        SequenceFinished(id=request_id, index=0, reason="stop", completion_tokens=1),
        RequestCompleted(
            id=request_id, prompt_tokens=5, completion_tokens=1, cached_tokens=0, timings=Timings()
        ),
    )


async def soon(count: int = 3) -> None:
    """Let the other tasks go on until they wait."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_request_says_whose_it_is() -> None:
    played = Played()
    client.set("c")
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(played.read(played.request())),
        asyncio.create_task(played.client.ask(EmbedRequest(id=played.client.next_id(), inputs=("a",)))),
    ]
    await soon()
    assert [cast(Any, request).client for request in played.worker.sent] == ["c", "c"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_step_is_split_over_the_requests_it_holds() -> None:
    played = Played()
    requests = [played.request() for _ in range(3)]
    readers = [asyncio.ensure_future(played.read(request)) for request in requests]
    await soon()
    for position in range(4):
        played.client.on_event(
            Step(tuple(answer(request.id, f"{request.id}")[position] for request in requests))
        )
    for request, reader in zip(requests, readers, strict=True):
        assert await reader == list(answer(request.id, f"{request.id}"))
    assert played.aborted() == []
    assert played.client.open_requests == 0


async def test_ids_are_never_used_twice() -> None:
    played = Played()
    assert len({played.client.next_id() for _ in range(1000)}) == 1000


async def test_an_error_of_the_worker_is_raised_as_it_was() -> None:
    played = Played()
    request = played.request()
    reader = asyncio.ensure_future(played.read(request))
    await soon()
    sent = ContextLengthExceeded(5000, 4096, param="prompt")
    played.client.on_event(Step((Failed(id=request.id, code=sent.code, payload=sent.payload()),)))
    with pytest.raises(ContextLengthExceeded) as caught:
        await reader
    assert caught.value.payload() == sent.payload()
    assert played.aborted() == []


@pytest.mark.parametrize("events_before", [0, 1, 2, 3])
async def test_closing_the_iterator_aborts_once_unless_the_request_was_over(events_before: int) -> None:
    played = Played()
    request = played.request()
    events = answer(request.id)
    played_until = events[:events_before]
    stream = events_of(played.client, request)
    first = asyncio.ensure_future(anext(stream))
    await soon()
    if played_until:
        played.client.on_event(Step(played_until))
        await first
    else:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    await stream.aclose()
    assert played.aborted() == [request.id]
    assert played.client.open_requests == 0
    played.client.on_event(Step(events[events_before:]))  # was on its way: nobody minds


async def test_a_finished_request_is_not_aborted_when_its_reader_leaves_early() -> None:
    played = Played()
    request = played.request()
    async with aclosing(events_of(played.client, request)) as stream:
        first = asyncio.ensure_future(anext(stream))
        await soon()
        played.client.on_event(Step(answer(request.id)))
        await first
        assert played.client.oldest_request_s() is None
    assert played.aborted() == []


async def test_cancelling_the_reader_aborts() -> None:
    played = Played()
    request = played.request()
    reader = asyncio.ensure_future(played.read(request))
    await soon()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert played.aborted() == [request.id]


async def test_a_crash_ends_every_open_request_once_and_later_ones_at_once() -> None:
    played = Played()
    generating, embedding = played.request(), EmbedRequest(id=played.client.next_id(), inputs=("a",))
    reader = asyncio.ensure_future(played.read(generating))
    embed = asyncio.ensure_future(played.client.ask(embedding))
    await soon()
    played.client.on_end(CRASH)
    for task in (reader, embed):
        with pytest.raises(EngineCrashed, match=r"model `tiny`.*signal SIGSEGV: last words"):
            await task
    with pytest.raises(EngineCrashed):
        await played.read(played.request())
    assert played.aborted() == []
    assert played.client.open_requests == 0


async def test_text_that_came_before_a_crash_is_delivered_before_the_error() -> None:
    played = Played()
    request = played.request()
    got: list[EngineEvent] = []

    async def read() -> None:
        async for event in events_of(played.client, request):
            got.append(event)

    reader = asyncio.ensure_future(read())
    await soon()
    played.client.on_event(Step(answer(request.id)[:2]))
    played.client.on_end(CRASH)
    with pytest.raises(EngineCrashed):
        await reader
    assert got == list(answer(request.id)[:2])


async def test_a_request_that_was_complete_does_not_mind_a_crash() -> None:
    played = Played()
    request = played.request()
    reader = asyncio.ensure_future(played.read(request))
    await soon()
    played.client.on_event(Step(answer(request.id)))
    played.client.on_end(CRASH)
    assert await reader == list(answer(request.id))


async def test_a_stall_in_sampling_blames_the_request_with_the_grammar_and_no_other() -> None:
    played = Played()
    guilty, other = played.request(grammar=True), played.request(grammar=True)
    tasks = [asyncio.ensure_future(played.read(request)) for request in (guilty, other)]
    await soon()
    stall = Stall(phase="sample", seconds=5.0, request_id=guilty.id)
    played.client.on_end(WorkerEnd(requested=False, status="signal SIGKILL", stall=stall))
    with pytest.raises(GrammarTooComplex, match=r"5\.0 s"):
        await tasks[0]
    with pytest.raises(EngineStalled, match="Send the request again"):
        await tasks[1]


async def test_a_stall_in_sampling_without_a_grammar_is_no_fault_of_the_request() -> None:
    played = Played()
    request = played.request()
    task = asyncio.ensure_future(played.read(request))
    await soon()
    stall = Stall(phase="sample", seconds=5.0, request_id=request.id)
    played.client.on_end(WorkerEnd(requested=False, status="signal SIGKILL", stall=stall))
    with pytest.raises(EngineStalled):
        await task


async def test_failing_all_aborts_them_in_the_worker() -> None:
    played = Played()
    requests = [played.request(), played.request()]
    tasks = [asyncio.ensure_future(played.read(request)) for request in requests]
    await soon()
    error = Draining("stopping")
    played.client.fail_all(error)
    raised: list[JanServeError] = []
    for task in tasks:
        with pytest.raises(Draining) as caught:
            await task
        raised.append(caught.value)
    assert played.aborted() == [request.id for request in requests]
    assert len({id(exception) for exception in [*raised, error]}) == 3, "each its own object"


async def test_calls_with_one_answer() -> None:
    played = Played()
    embedding = EmbedRequest(id=played.client.next_id(), inputs=("a",))
    embed = asyncio.ensure_future(played.client.ask(embedding))
    tokenizing = TokenizeRequest(id=played.client.next_id(), text="a")
    tokenize = asyncio.ensure_future(played.client.ask(tokenizing))
    await soon()
    tokens = Tokenized(tokenizing.id, [1])
    played.client.on_event(tokens)
    vectors = Embedded(id=embedding.id, vectors=(b"\0" * 4,), dimensions=1, prompt_tokens=1)
    played.client.on_event(vectors)
    assert await tokenize == tokens
    assert await embed == vectors
    assert played.aborted() == []


async def test_the_parts_of_one_answer_are_put_together() -> None:
    played = Played()
    request = TokenizeRequest(id=played.client.next_id(), text="abc", with_pieces=True)
    task = asyncio.ensure_future(played.client.ask(request))
    await soon()
    for token, piece in ((1, b"a"), (2, b"b")):
        played.client.on_event(Tokenized(request.id, [token], [piece], is_last=False))
    await soon()
    assert not task.done()
    played.client.on_event(Tokenized(request.id, [3], [b"c"]))
    assert await task == Tokenized(request.id, [1, 2, 3], [b"a", b"b", b"c"], is_last=False)
    played.client.on_event(Tokenized(request.id, [4]))
    assert played.client.open_requests == 0


async def test_a_call_that_fails_or_is_cancelled() -> None:
    played = Played()
    failing = DetokenizeRequest(id=played.client.next_id(), tokens=(99,))
    task = asyncio.ensure_future(played.client.ask(failing))
    await soon()
    payload = {"message": "token 99 is outside", "param": "tokens"}
    played.client.on_event(Failed(id=failing.id, code="invalid_request", payload=payload))
    with pytest.raises(InvalidRequest, match="token 99"):
        await task
    cancelled = EmbedRequest(id=played.client.next_id(), inputs=("a",))
    task2 = asyncio.ensure_future(played.client.ask(cancelled))
    await soon()
    task2.cancel()
    await asyncio.gather(task2, return_exceptions=True)
    assert played.aborted() == [cancelled.id]


async def test_an_answer_of_the_wrong_kind_is_an_engine_failure() -> None:
    played = Played()
    request = EmbedRequest(id=played.client.next_id(), inputs=("a",))
    task = asyncio.ensure_future(played.client.ask(request))
    await soon()
    played.client.on_event(Tokenized(request.id, [1]))
    with pytest.raises(EngineFailure, match="answered EmbedRequest with Tokenized"):
        await task


async def test_a_request_that_the_pipe_cannot_carry_is_the_callers_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(REQUESTS, "limit", 1000)
    played = Played()
    with pytest.raises(InvalidRequest, match="too large for the worker pipe"):
        await played.read(played.request("x" * 2000))
    assert played.client.open_requests == 0


async def test_a_request_sent_to_a_worker_that_is_ending_gets_its_end() -> None:
    played = Played()
    played.worker.gone = True
    task = asyncio.ensure_future(played.read(played.request()))
    await soon()
    assert not task.done()
    played.client.on_end(CRASH)
    with pytest.raises(EngineCrashed):
        await task


async def test_the_age_of_the_oldest_request() -> None:
    played = Played()
    assert played.client.oldest_request_s() is None
    first = played.request()
    task = asyncio.ensure_future(played.read(first))
    await soon()
    played.now = 3.0
    second = asyncio.ensure_future(played.read(played.request()))
    await soon()
    assert played.client.oldest_request_s() == 3.0
    played.client.on_event(Step(answer(first.id)))
    await task
    assert played.client.oldest_request_s() == 0.0
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_using_an_id_twice_at_once_is_refused() -> None:
    played = Played()
    request = played.request()
    task = asyncio.ensure_future(played.read(request))
    await soon()
    with pytest.raises(ProtocolError, match="in use"):
        await played.read(request)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert played.client.open_requests == 0
