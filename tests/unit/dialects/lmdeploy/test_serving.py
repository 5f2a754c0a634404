from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from jan_serve.core.caller import cache_salt, key_of_request
from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TextDelta, TokenInfo, Usage
from jan_serve.dialects.lmdeploy.serving import Session, Sessions
from jan_serve.errors import EngineCrashed, InvalidRequest

pytestmark = pytest.mark.anyio

WHOLE: list[GenerationEvent] = [
    Started(model="m", prompt_tokens=3),
    TextDelta(0, "a", (TokenInfo(1, b"a"),)),
    Finished(index=0, reason="stop", completion_tokens=1),
    Completed(usage=Usage(prompt_tokens=3, completion_tokens=1)),
]


def is_live(sessions: Sessions) -> bool:
    return (key_of_request(), 7) in sessions.live


class Source:
    """Events that stop at a gate, and whether they were closed."""

    def __init__(self, events: list[GenerationEvent], *, gate_at: int | None = None) -> None:
        self.events = events
        self.gate_at = gate_at
        self.waiting = asyncio.Event()
        self.closed = False

    async def run(self) -> AsyncGenerator[GenerationEvent]:
        try:
            for at, event in enumerate(self.events):
                if at == self.gate_at:
                    self.waiting.set()
                    await asyncio.Event().wait()
                yield event
        finally:
            self.closed = True


async def collected(session: Session, source: Source, choices: int = 1) -> list[GenerationEvent]:
    return [event async for event in session.run(source.run(), choices=choices)]


async def test_a_session_lives_as_long_as_its_request() -> None:
    sessions = Sessions()
    session = Session(sessions, 7)
    events = session.run(Source(WHOLE).run(), choices=1)
    assert not is_live(sessions)
    assert await anext(events) == WHOLE[0]
    assert (is_live(sessions), len(sessions.live)) == (True, 1)
    assert [event async for event in events] == WHOLE[1:]
    assert (is_live(sessions), len(sessions.live)) == (False, 0)


async def test_an_id_in_use_is_refused_and_free_afterwards() -> None:
    sessions = Sessions()
    first = Session(sessions, 7).run(Source(WHOLE).run(), choices=1)
    await anext(first)
    with pytest.raises(InvalidRequest) as error:
        await collected(Session(sessions, 7), Source(WHOLE))
    assert error.value.message == "The session_id 7 is occupied."
    assert is_live(sessions)
    await first.aclose()
    assert await collected(Session(sessions, 7), Source(WHOLE)) == WHOLE


async def test_drawn_ids_cannot_be_guessed_and_are_exact_in_every_client() -> None:
    sessions = Sessions()
    drawn = [Session(sessions, None) for _ in range(50)]
    for session in drawn:
        await collected(session, Source(WHOLE))
    ids = {session.id or 0 for session in drawn}
    assert len(ids) == 50
    assert max(ids) < 1 << 53
    assert max(ids) > 1 << 40


async def test_the_sessions_of_another_key_are_not_there() -> None:
    sessions = Sessions()
    cache_salt.set("a key")
    mine, source = Session(sessions, 7), Source(WHOLE, gate_at=1)
    running = asyncio.create_task(collected(mine, source))
    await source.waiting.wait()
    cache_salt.set("another key/somebody")
    assert not is_live(sessions)
    assert not sessions.abort(7)
    assert sessions.abort_all(key_of_request()) == 0
    assert await collected(Session(sessions, 7), Source(WHOLE)) == WHOLE
    cache_salt.set("a key/somebody")
    assert sessions.abort_all(key_of_request()) == 1
    assert [event.reason for event in await running if isinstance(event, Finished)] == ["abort"]


@pytest.mark.parametrize("gate_at", range(len(WHOLE)))
async def test_an_aborted_session_ends_as_any_other(gate_at: int) -> None:
    sessions = Sessions()
    session = Session(sessions, 7)
    source = Source(WHOLE, gate_at=gate_at)
    running = asyncio.create_task(collected(session, source))
    await source.waiting.wait()
    assert sessions.abort(7)
    events = await running
    assert source.closed
    assert not is_live(sessions)
    assert events[:gate_at] == WHOLE[:gate_at]
    assert isinstance(events[0], Started)
    ends = [event.reason for event in events if isinstance(event, Finished)]
    assert ends == (["abort"] if gate_at < 3 else ["stop"])
    completed = events[-1]
    assert isinstance(completed, Completed)
    assert completed.usage.completion_tokens == (1 if gate_at > 1 else 0)


async def test_every_choice_that_runs_is_ended() -> None:
    sessions = Sessions()
    source = Source([*WHOLE[:3], TextDelta(1, "b"), WHOLE[3]], gate_at=4)
    running = asyncio.create_task(collected(Session(sessions, None), source, choices=3))
    await source.waiting.wait()
    assert sessions.abort_all(None) == 1
    ends = [(event.index, event.reason) for event in await running if isinstance(event, Finished)]
    assert ends == [(0, "stop"), (1, "abort"), (2, "abort")]


async def test_nothing_is_aborted_where_nothing_runs() -> None:
    sessions = Sessions()
    assert not sessions.abort(7)
    assert sessions.abort_all(None) == 0


async def test_a_failure_frees_the_id() -> None:
    sessions = Sessions()

    async def failing() -> AsyncGenerator[GenerationEvent]:
        yield WHOLE[0]
        raise EngineCrashed("gone")

    with pytest.raises(EngineCrashed):
        async for _ in Session(sessions, 7).run(failing(), choices=1):
            pass
    assert len(sessions.live) == 0


async def test_cancelling_frees_the_id_and_closes_the_work() -> None:
    sessions = Sessions()
    source = Source(WHOLE, gate_at=1)
    running = asyncio.create_task(collected(Session(sessions, 7), source))
    await source.waiting.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (source.closed, len(sessions.live)) == (True, 0)
