"""The last records of this process's log, kept in memory, and GET /logs: never the text of a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.replies import frame, json_reply
from jan_serve.http.sse import STREAMED, EventStream, StreamSettings
from jan_serve.logs.log_lines import record_content

KEPT: Final = 2000
_MAX_CHARS: Final = 20_000
"""Characters kept of one message or traceback: those of templates and libraries have no other limit."""


def _plain(value: object) -> object:
    """A JSON value of bounded length."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"


class LogEntry(msgspec.Struct, frozen=True):
    """number: counts from 1 since the start, without gaps. level: the logging module's number."""

    number: int
    level: int
    content: dict[str, Any]


class RecentLog(logging.Handler):
    """A handler that keeps the last `kept` records. Listeners are called in the thread that logs."""

    def __init__(self, kept: int = KEPT) -> None:
        super().__init__()
        self._entries: deque[LogEntry] = deque(maxlen=kept)
        self._last = 0
        self._listeners: list[Callable[[], object]] = []
        self._mutex = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            content = {name: _plain(value) for name, value in record_content(record).items()}
        except Exception:  # a record that cannot be formatted must not break the code that logs it
            self.handleError(record)
            return
        with self._mutex:
            self._last += 1
            self._entries.append(LogEntry(self._last, record.levelno, content))
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def entries(self, *, after: int = 0, level: int = logging.NOTSET) -> list[LogEntry]:
        """Kept records, oldest first, with a number above `after` and at least this level."""
        with self._mutex:
            return [entry for entry in self._entries if entry.number > after and entry.level >= level]

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], object]) -> Generator[None]:
        """Call `listener` after every record while the block runs."""
        with self._mutex:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._mutex:
                self._listeners.remove(listener)


@contextlib.contextmanager
def recent_log() -> Generator[RecentLog]:
    """A handler on the root logger while the block runs."""
    handler = RecentLog()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        handler.close()


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
        last = found or log.entries()
        after = last[-1].number if last else 0
        return EventStream(_follow(log, lifecycle, found, after, min_level), streams)

    return router


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
