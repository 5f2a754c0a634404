"""GET /logs: the last lines of the server's log, and new ones as a stream. Never the text of a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.api.routes.recent_log import KEPT, LogEntry, RecentLog
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.replies import frame, json_reply
from jan_serve.http.sse import STREAMED, EventStream, StreamSettings

_LOOK_S: Final = 1.0
"""Interval at which a follower checks whether the server stops."""

Level = Literal["debug", "info", "warning", "error"]


class LogLines(TypedDict):
    """Records, oldest first: time (RFC 3339), level, logger, message, and further fields of the record."""

    lines: list[dict[str, Any]]


def log_router(log: RecentLog, lifecycle: Lifecycle, streams: StreamSettings) -> APIRouter:
    router = APIRouter(tags=["Server"])

    @router.get("/logs", summary="The server's log", response_model=LogLines, responses=STREAMED)
    async def logs(
        lines: Annotated[int, Query(ge=0, le=KEPT, description="Number of last lines.")] = 100,
        level: Annotated[Level, Query(description="The lowest level to include.")] = "debug",
        follow: Annotated[bool, Query(description="Stream events, and continue with new lines.")] = False,
    ) -> Response:
        """The last lines of the log, oldest first: `{"lines": […]}`, or an event each."""
        min_level = logging.getLevelNamesMapping()[level.upper()]
        found = log.entries(level=min_level)
        found = found[len(found) - min(lines, len(found)) :]
        if not follow:
            answer: LogLines = {"lines": [entry.content for entry in found]}
            return json_reply(answer)
        after = found[-1].number if found else _last_number(log)
        frames = _follow(log, lifecycle, found, after, min_level)
        return EventStream(frames, streams)

    return router


def _last_number(log: RecentLog) -> int:
    entries = log.entries()
    return entries[-1].number if entries else 0


async def _follow(
    log: RecentLog, lifecycle: Lifecycle, first: list[LogEntry], after: int, level: int
) -> AsyncGenerator[bytes]:
    """Events of `first`, then of every later entry. Ends when the server drains and no request is open."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    with log.listening(lambda: loop.call_soon_threadsafe(arrived.set)):
        for entry in first:
            yield frame(entry.content)
        while True:
            arrived.clear()
            # Read before the entries, so that all entries up to then are sent.
            is_over = lifecycle.draining and lifecycle.open_requests == 0
            for entry in log.entries(after=after, level=level):
                after = entry.number
                yield frame(entry.content)
            if is_over:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await arrived.wait()
