"""A request's start, its lease, and its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from jan_serve.core.events import Completed, Finished, GenerationEvent, PromptTokens, Started, TextDelta
from jan_serve.core.request import ChatPrompt, GenerationRequest, TextPrompt
from jan_serve.dialects.anthropic.claude_clients import names_for, names_or_default
from jan_serve.errors import (
    DeadlineExceeded,
    Draining,
    EngineCrashed,
    EngineFailure,
    InvalidRequest,
    JanServeError,
    ModelNotFound,
    Overloaded,
)
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.service import Names, exact_name, name_or_default
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest, Pong, SequenceFinished
from tests.support.engine.fake_client import FakeClient, FakeModels, endings, failing, saying
from tests.unit.generation.support import collect, service_over

pytestmark = pytest.mark.anyio


def text_request(text: str = "once", **fields: Any) -> GenerationRequest:
    return GenerationRequest(prompt=TextPrompt(text), **fields)


async def test_events_come_in_order_from_started_to_completed() -> None:
    models = FakeModels(FakeClient(script=saying("Hel", "lo.")))
    with service_over(models) as service:
        events = await collect(service, text_request(n=2, best_of=2))
    kinds = [Started, *[TextDelta] * 4, *[Finished] * 2, Completed]
    assert all(isinstance(event, kind) for event, kind in zip(events, kinds, strict=True))
    assert events[0] == Started(model="fake", prompt_tokens=4)
    texts = ["".join(e.text for e in events if isinstance(e, TextDelta) and e.index == i) for i in (0, 1)]
    assert texts == ["Hello.", "Hello."]
    assert models.held == 0


async def test_prompt_tokens_come_before_the_text() -> None:
    with service_over(FakeModels()) as service:
        events = await collect(service, text_request(logprobs=1, prompt_logprobs=1))
    assert isinstance(events[1], PromptTokens)
    assert events[1].tokens[0].logprob is None
    assert events[1].tokens[1].logprob == -0.5


async def test_best_of_returns_the_most_likely_choices_without_the_tokens_it_needed() -> None:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        assert request.logprobs == 0
        yield Accepted(request.id, 1)
        for index in range(request.n):
            yield Chunk(index, f"choice {index}", id=request.id)
        ends = endings(request, 2)
        for event, mean in zip(ends[:-1], (-3.0, -1.0, -2.0), strict=True):
            assert isinstance(event, SequenceFinished)
            yield msgspec.structs.replace(event, mean_logprob=mean)
        yield ends[-1]

    with service_over(FakeModels(FakeClient(script=script))) as service:
        events = await collect(service, text_request(n=2, best_of=3))
    texts = {event.index: event.text for event in events if isinstance(event, TextDelta)}
    assert texts == {0: "choice 1", 1: "choice 2"}
    finished = [event for event in events if isinstance(event, Finished)]
    assert [(event.index, event.mean_logprob) for event in finished] == [(0, -1.0), (1, -2.0)]
    assert isinstance(events[-1], Completed)
    assert events[-1].usage.completion_tokens == 6


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (GenerationRequest(prompt=ChatPrompt(messages=())), InvalidRequest),
        (text_request(model="other"), ModelNotFound),
    ],
    ids=["no messages", "unknown model"],
)
async def test_a_refused_request_reaches_no_engine_and_returns_the_model(
    request_: GenerationRequest, error: type[JanServeError]
) -> None:
    models = FakeModels(client := FakeClient())
    with service_over(models) as service, pytest.raises(error):
        await collect(service, request_)
    assert client.requests == []
    assert models.held == 0


async def test_an_error_of_the_engine_ends_the_events_and_returns_the_model() -> None:
    models = FakeModels(FakeClient(script=failing(EngineCrashed("gone"), "0", "1")))
    running = RunningRequests(None)
    seen: list[GenerationEvent] = []
    with service_over(models, running) as service, pytest.raises(EngineCrashed):
        async for event in service.generate(text_request()):
            seen.append(event)
    assert len(seen) == 3
    assert (models.held, len(running)) == (0, 0)


async def test_closing_aborts_the_request_and_returns_the_model() -> None:
    client = FakeClient(script=saying(*"abcdef"))
    models = FakeModels(client)
    with service_over(models) as service:
        events = service.generate(text_request())
        await anext(events)
        await anext(events)
        assert models.held == 1
        await events.aclose()
    assert client.closed_early == [client.requests[0].id]
    assert models.held == 0


async def hanging(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    yield Accepted(request.id, 1)
    await asyncio.Event().wait()


async def test_cancelling_the_reader_aborts_too() -> None:
    client = FakeClient(script=hanging)
    models = FakeModels(client)
    with service_over(models) as service:
        events = service.generate(text_request())
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert client.closed_early
    assert models.held == 0


async def test_a_request_that_takes_too_long_ends() -> None:
    models = FakeModels(FakeClient(script=hanging))
    with (
        service_over(models, RunningRequests(0.02)) as service,
        pytest.raises(DeadlineExceeded, match=r"0\.02 s"),
    ):
        await collect(service, text_request())
    assert models.held == 0


async def test_a_server_that_stops_ends_all_requests_with_its_reason() -> None:
    running = RunningRequests(None)
    with service_over(FakeModels(FakeClient(script=hanging)), running) as service:
        events = service.generate(text_request())
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        running.expire_all(Draining("stopping"))
        with pytest.raises(Draining):
            await waiting
    assert len(running) == 0


async def test_a_full_queue_is_the_callers_error() -> None:
    models = FakeModels()
    models.refusal = Overloaded("full")
    with service_over(models) as service, pytest.raises(Overloaded):
        await collect(service, text_request())


@pytest.mark.parametrize("last", [None, Pong(nonce=1, phase="idle", phase_s=0.0)], ids=["end", "nonsense"])
async def test_an_answer_that_is_never_completed_is_an_engine_failure(last: Any) -> None:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 1)
        if last is not None:
            yield last

    with service_over(FakeModels(FakeClient(script=script))) as service, pytest.raises(EngineFailure):
        await collect(service, text_request())


@pytest.mark.parametrize(
    ("names", "asked", "served"),
    [
        (exact_name, None, "haiku"),
        (exact_name, "claude", "claude"),
        (name_or_default, None, "haiku"),
        (name_or_default, "claude", "claude"),
        (name_or_default, "gpt-4o", "haiku"),
        (names_for, None, "haiku"),
        (names_for, "claude-haiku-4-5", "haiku"),
        (names_for, "claude-opus-4", "claude"),
        (names_or_default, "claude-opus-4", "claude"),
        (names_or_default, "gpt-4o", "haiku"),
    ],
)
async def test_the_first_model_of_the_names_serves(names: Names, asked: str | None, served: str) -> None:
    models = FakeModels(FakeClient("haiku"), FakeClient("claude"))
    with service_over(models, names=names) as service:
        async with service.open(asked, 5.0) as model:
            assert (model.name, models.held) == (served, 1)
    assert models.held == 0
    assert set(models.keep_alives) == {5.0}


@pytest.mark.parametrize(
    ("names", "missing"),
    [(exact_name, "gpt-4o"), (names_for, "claude-opus-4"), (name_or_default, "gpt-4o")],
)
async def test_the_error_names_what_is_missing(names: Names, missing: str) -> None:
    """Where the default model is looked up too, that is missing."""
    models = FakeModels(FakeClient("other"))
    if names is name_or_default:
        models.refusal = ModelNotFound("default")
    with (
        service_over(models, names=names) as service,
        pytest.raises(ModelNotFound, match="default" if models.refusal else missing),
    ):
        async with service.open(missing):
            raise AssertionError


async def test_other_refusals_and_errors_inside_end_the_search() -> None:
    models = FakeModels()
    with service_over(models, names=name_or_default) as service:
        with pytest.raises(ModelNotFound, match="inside"):
            async with service.open("fake"):
                raise ModelNotFound("inside")
        models.refusal = Overloaded("full")
        with pytest.raises(Overloaded):
            async with service.open("b"):
                raise AssertionError
    assert models.leased == ["fake", "b"]
