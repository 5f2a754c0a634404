from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from typing import Any

import pytest

from jan_serve.errors import EngineCrashed
from jan_serve.http.disconnect import ConnectionHooks, attach_hooks
from jan_serve.http.errors import Problem
from jan_serve.http.replies import frame, named_frame
from jan_serve.http.request_record import RequestRecord
from jan_serve.http.sse import EventStream, StreamSettings, frames_of
from tests.support.processes import until

pytestmark = pytest.mark.anyio


def render_error(problem: Problem) -> object:
    return {"error": problem.code}


class Numbers:
    """A generator of numbers that remembers its end."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.closed = False

    async def __call__(self) -> AsyncGenerator[int]:
        try:
            for number in range(self.count):
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True


async def all_frames(numbers: Numbers, record: RequestRecord, done: bytes = b"data: [DONE]\n\n") -> bytes:
    frames = frames_of(numbers(), lambda n: [n] * n, render_error, record=record, done=done)
    return b"".join([part async for part in frames])


def test_a_frame_is_one_line() -> None:
    assert frame({"a": "x\ny\u2028"}) == b'data: {"a":"x\\ny\\u2028"}\n\n'


def test_an_event_may_repeat_its_type_as_its_name() -> None:
    assert named_frame({"type": "a.b", "c": "\n"}) == b'event: a.b\ndata: {"type":"a.b","c":"\\n"}\n\n'


async def test_done_comes_after_success_only() -> None:
    record = RequestRecord("r")
    assert await all_frames(Numbers(3), record) == b"data: 1\n\ndata: 2\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert (record.error, record.cancelled) == (None, False)
    assert await all_frames(Numbers(2), record, done=b"") == b"data: 1\n\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineCrashed("x"), b"engine_crashed"),
        (ValueError("secret"), b"internal_error"),
        (MemoryError(), b"insufficient_memory"),
    ],
)
async def test_a_failure_is_the_last_event(error: Exception, code: bytes) -> None:
    record, numbers = RequestRecord("r"), Numbers(2, error)
    assert await all_frames(numbers, record) == b'data: 1\n\ndata: {"error":"' + code + b'"}\n\n'
    assert (record.error, record.cancelled, numbers.closed) == (code.decode(), False, True)


async def test_an_event_that_cannot_be_rendered_closes_the_events() -> None:
    def render(number: int) -> list[int]:
        raise KeyError(number)

    numbers = Numbers(5)
    frames = frames_of(numbers(), render, render_error, record=RequestRecord("r"))
    assert [part async for part in frames] == [b'data: {"error":"internal_error"}\n\n']
    assert numbers.closed


async def test_a_reader_that_leaves_closes_the_events() -> None:
    record, numbers = RequestRecord("r"), Numbers(5)
    frames = frames_of(numbers(), lambda n: [n], render_error, record=record)
    await anext(frames)
    await frames.aclose()
    assert (numbers.closed, record.cancelled) == (True, True)


async def test_an_event_that_was_awaited_before_comes_first() -> None:
    numbers = Numbers(3)
    events = numbers()
    first = await anext(events)
    frames = frames_of(events, lambda n: [n], render_error, record=RequestRecord("r"), first=[first])
    assert await anext(frames) == frame(0)
    await frames.aclose()
    assert numbers.closed


class Wire:
    """An ASGI server's end: what was sent, and a client that leaves, or stops reading, when it is told to."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.left = asyncio.Event()
        self.stuck = False
        self.aborted = False

    async def run(self, response: EventStream) -> None:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": []}
        attach_hooks(scope, ConnectionHooks(b"/", self._abort))
        await response(scope, self._receive, self._send)

    def _abort(self) -> None:
        self.aborted = True

    async def _receive(self) -> dict[str, object]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self.stuck and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        self.sent.append(message.get("body", b""))


class Frames:
    """Some frames, then silence."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = frames
        self.closed = False

    async def __call__(self) -> AsyncIterator[bytes]:
        try:
            for part in self.frames:
                yield part
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_a_client_that_leaves_ends_the_frames() -> None:
    wire, frames = Wire(), Frames(b"data: 1\n\n")
    running = asyncio.ensure_future(wire.run(EventStream(frames(), StreamSettings(60, 60))))
    await until(lambda: b"data: 1\n\n" in wire.sent)
    assert not frames.closed
    wire.left.set()
    await running
    assert frames.closed


async def test_a_reader_that_is_stuck_is_dropped() -> None:
    wire, frames = Wire(), Frames(b"data: 1\n\n")
    wire.stuck = True
    await wire.run(EventStream(frames(), StreamSettings(60, 0.02)))
    assert (frames.closed, wire.aborted) == (True, True)


@pytest.mark.parametrize(("ping_s", "pinged"), [(0.01, True), (0, False)])
async def test_silence_is_filled_with_comments_where_they_are_wanted(ping_s: float, pinged: bool) -> None:
    wire, frames = Wire(), Frames(b"data: 1\n\n")
    running = asyncio.ensure_future(wire.run(EventStream(frames(), StreamSettings(ping_s, 60))))
    if pinged:
        await until(lambda: wire.sent.count(b": ping\n\n") >= 2)
    else:
        await until(lambda: b"data: 1\n\n" in wire.sent)
    wire.left.set()
    await running
    assert (b": ping\n\n" in wire.sent) == pinged
