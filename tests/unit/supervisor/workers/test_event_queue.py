"""Events of one request: in order, merged while the reader is slow, and bounded."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from jan_serve.core.events import Timings, TokenInfo
from jan_serve.errors import EngineCrashed
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, RequestCompleted, SequenceFinished
from jan_serve.supervisor.workers.event_queue import EventQueue

pytestmark = pytest.mark.anyio

DONE = RequestCompleted(id=1, prompt_tokens=3, completion_tokens=4, cached_tokens=0, timings=Timings())
EVENTS: list[EngineEvent] = [
    Accepted(1, 3),
    Chunk(0, "a", (TokenInfo(1, b"a"),), id=1, ids=(1,), draws=1),
    Chunk(1, "x", id=1, ids=(8, 9), draws=4),
    Chunk(0, "b", (TokenInfo(2, b"b"),), id=1, ids=(2,), draws=2),
    SequenceFinished(id=1, index=0, reason="stop", completion_tokens=2),
    Chunk(1, "y", id=1),
    Chunk(1, "z", id=1, ids=(7,), draws=5),
    SequenceFinished(id=1, index=1, reason="length", completion_tokens=2),
    DONE,
]


def of_sequence(events: Sequence[EngineEvent], index: int) -> tuple[object, ...]:
    """Text, tokens, ids, draws and the order of kinds of one sequence, however it was cut."""
    mine = [event for event in events if isinstance(event, Chunk | SequenceFinished) and event.index == index]
    chunks = [event for event in mine if isinstance(event, Chunk)]
    kinds = [kind for kind, _ in itertools.groupby(type(event).__name__ for event in mine)]
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    ids = tuple(token for chunk in chunks for token in chunk.ids)
    return "".join(chunk.text for chunk in chunks), tokens, ids, max(chunk.draws for chunk in chunks), kinds


@pytest.mark.parametrize(
    "reads", list(itertools.product((False, True), repeat=len(EVENTS) - 1)), ids=lambda _: ""
)
async def test_a_sequence_reads_the_same_whenever_the_reader_comes(reads: tuple[bool, ...]) -> None:
    inbox = EventQueue()
    got: list[EngineEvent] = []
    for event, read_now in zip(EVENTS, (*reads, True), strict=True):
        inbox.put(event)
        while read_now and len(inbox):
            got.append(await inbox.get())
    assert got[0] == EVENTS[0]
    assert got[-1] == DONE
    for index in (0, 1):
        assert of_sequence(got, index) == of_sequence(EVENTS, index)


async def test_a_quick_reader_gets_every_chunk_as_it_came() -> None:
    inbox = EventQueue()
    for event in EVENTS:
        inbox.put(event)
        assert await inbox.get() is event


async def test_a_slow_reader_holds_one_chunk_a_sequence() -> None:
    inbox = EventQueue()
    for number in range(10_000):
        inbox.put(Chunk(number % 3, "x", id=1))
    assert len(inbox) == 3
    assert await inbox.get() == Chunk(0, "x" * 3334, id=1)


async def test_the_reader_waits_for_the_next_event() -> None:
    inbox = EventQueue()
    reader = asyncio.ensure_future(inbox.get())
    await asyncio.sleep(0)
    assert not reader.done()
    inbox.put(DONE)
    assert await reader == DONE


async def test_what_came_before_a_failure_is_read_first_and_the_first_failure_stays() -> None:
    inbox = EventQueue()
    inbox.put(Chunk(0, "a", id=1))
    inbox.fail(EngineCrashed("first"))
    inbox.fail(EngineCrashed("second"))
    assert await inbox.get() == Chunk(0, "a", id=1)
    with pytest.raises(EngineCrashed, match="first"):
        await inbox.get()


async def test_a_failure_wakes_the_reader() -> None:
    inbox = EventQueue()
    reader = asyncio.ensure_future(inbox.get())
    await asyncio.sleep(0)
    inbox.fail(EngineCrashed("gone"))
    with pytest.raises(EngineCrashed):
        await reader
