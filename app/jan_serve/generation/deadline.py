"""Deadlines of requests, and their end from outside: the request raises the reason instead of being cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import TypeVar

from jan_serve.errors import DeadlineExceeded, JanServeError

T = TypeVar("T")


class Deadline:
    """The end of one request. All its waits go through `wait`; several may run side by side."""

    def __init__(self, limit_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._limit_s = limit_s
        self._at = loop.time() + limit_s if limit_s is not None else None
        self._waits: set[asyncio.Timeout] = set()
        self._error: JanServeError | None = None

    def expire(self, error: JanServeError) -> None:
        """End the request with this error, at its present waits or its next one."""
        self._error = error
        self._at = asyncio.get_running_loop().time()
        for timeout in self._waits:
            if not timeout.expired():
                timeout.reschedule(self._at)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await it, up to the deadline. Raises DeadlineExceeded, or the error that `expire` was given."""
        timeout = asyncio.timeout_at(self._at)
        try:
            async with timeout:
                self._waits.add(timeout)
                return await awaitable
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._error or DeadlineExceeded(
                f"The request ran longer than {self._limit_s:g} s, which is the server's limit."
            ) from None
        finally:
            self._waits.discard(timeout)


class RunningRequests:
    """All requests that have not ended. A server that stops ends them with a reason."""

    def __init__(self, limit_s: float | None) -> None:
        """limit_s: of each request; None is no limit."""
        self._limit_s = limit_s
        self._deadlines: set[Deadline] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    @contextmanager
    def enter(self) -> Generator[Deadline]:
        """A request runs while the block does."""
        deadline = Deadline(self._limit_s)
        self._deadlines.add(deadline)
        try:
            yield deadline
        finally:
            self._deadlines.discard(deadline)

    def expire_all(self, error: JanServeError) -> None:
        for deadline in list(self._deadlines):
            deadline.expire(error)
