"""Sends an answer, whole or as a stream, from the same events. The dialect's renderer decides its form."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.closing import closing
from jan_serve.core.events import Started
from jan_serve.generation.batch import PromptEvent
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import DONE, EventStream, StreamSettings, frame, frames_of, resumed

Events = AsyncGenerator[PromptEvent]


class WholeRenderer(Protocol):
    """Folds the events of an answer into one body."""

    def add(self, event: PromptEvent) -> None: ...

    def body(self) -> object:
        """The JSON value, after all events were added."""
        ...


Chunks = Callable[[PromptEvent], Iterable[object]]
"""Turns each event into JSON values, in order; often none or one."""


async def answer_whole(request: Request, events: Events, renderer: WholeRenderer) -> Response:
    """Wait for the last event, then send the body. Raises what the events raise, and ClientGone."""
    record = record_of(request.scope)

    async def collect() -> None:
        async with closing(events):
            async for event in events:
                record.observe(event.event)
                renderer.add(event)

    await while_connected(request, collect())
    return json_reply(renderer.body())


async def with_warnings(events: Events, warnings: tuple[str, ...]) -> Events:
    """The events, with the warnings of parsing before those of preparation."""
    async with closing(events):
        async for event in events:
            if warnings and isinstance(event.event, Started):
                started = msgspec.structs.replace(event.event, warnings=(*warnings, *event.event.warnings))
                yield PromptEvent(event.prompt, started)
            else:
                yield event


async def answer_stream(
    request: Request,
    events: Events,
    chunks: Chunks,
    render_error: Callable[[Problem], object],
    streams: StreamSettings,
    *,
    done: bytes = DONE,
    done_after_error: bool = False,
    framed: Callable[[Any], bytes] = frame,
) -> Response:
    """Wait for the first event: an error before it still sets the status. Raises as `answer_whole`.

    done: ends a stream that succeeded; with done_after_error, also one that failed. framed: encodes a value.
    """
    record = record_of(request.scope)
    record.stream = True
    first = await while_connected(request, anext(events))
    if isinstance(first.event, Started):
        record.warnings = first.event.warnings  # these are headers, which go out before the first frame

    def render(event: PromptEvent) -> Iterable[object]:
        record.observe(event.event)
        return chunks(event)

    frames = frames_of(
        resumed(first, events),
        render,
        render_error,
        record=record,
        done=done,
        done_after_error=done_after_error,
        framed=framed,
    )
    return EventStream(frames, streams)
