"""GET /logs: the last lines of the server's log, and the next ones as they come. Never the text of a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.api.http.replies import json_reply
from jan_serve.api.http.sse import SSE_RESPONSE, EventStream, StreamSettings, frame
from jan_serve.api.lifecycle import Lifecycle
from jan_serve.api.routes.recent_log import KEPT, LogEntry, RecentLog

_LOOK_S: Final = 1.0
"""How often a follower looks whether the server stops."""
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {200: {"content": SSE_RESPONSE}}

Level = Literal["debug", "info", "warning", "error"]


class LogLines(TypedDict):
    """Records, oldest first: time (RFC 3339), level, logger, message, and what else the record has."""

    lines: list[dict[str, Any]]


def log_router(log: RecentLog, lifecycle: Lifecycle, streams: StreamSettings) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["Server"])

    @router.get("/logs", summary="The server's log", response_model=LogLines, responses=_RESPONSES)
    async def logs(
        lines: Annotated[int, Query(ge=0, le=KEPT, description="So many of the last lines.")] = 100,
        level: Annotated[Level, Query(description="The least severe lines that are of interest.")] = "debug",
        follow: Annotated[bool, Query(description="Answer with events, and go on with new lines.")] = False,
    ) -> Response:
        """The last lines of the log, oldest first: `{"lines": […]}`, or an event each."""
        least = logging.getLevelNamesMapping()[level.upper()]
        found = log.entries(level=least)
        found = found[len(found) - min(lines, len(found)) :]
        if not follow:
            answer: LogLines = {"lines": [entry.content for entry in found]}
            return json_reply(answer)
        after = found[-1].number if found else _last_number(log)
        frames = _follow(log, lifecycle, found, after, least)
        return EventStream(frames, streams)

    return router


def _last_number(log: RecentLog) -> int:
    entries = log.entries()
    return entries[-1].number if entries else 0


async def _follow(
    log: RecentLog, lifecycle: Lifecycle, first: list[LogEntry], after: int, level: int
) -> AsyncGenerator[bytes]:
    """Events of `first`, then of every entry after it. Ends when the server has nothing left to do but to stop."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    with log.listening(lambda: loop.call_soon_threadsafe(news.set)):
        for entry in first:
            yield frame(entry.content)
        while True:
            news.clear()
            # Looked at first, so that all entries of before are given.
            is_over = lifecycle.draining and lifecycle.open_requests == 0
            for entry in log.entries(after=after, level=level):
                after = entry.number
                yield frame(entry.content)
            if is_over:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await news.wait()
