"""How long a request may go on, and how it is ended from outside. Not a cancellation: the request learns the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import TypeVar

from jan_serve.errors import DeadlineExceeded, JanServeError

T = TypeVar("T")


class Deadline:
    """The end of one request. Its waits go through `wait`, one at a time."""

    def __init__(self, limit_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._limit_s = limit_s
        self._at = loop.time() + limit_s if limit_s is not None else None
        self._waiting: asyncio.Timeout | None = None
        self._error: JanServeError | None = None

    def expire(self, error: JanServeError) -> None:
        """End the request with this error at its present or next wait."""
        self._error = error
        self._at = asyncio.get_running_loop().time()
        if self._waiting is not None:
            self._waiting.reschedule(self._at)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await it, up to the deadline. Raises DeadlineExceeded, or the error that `expire` was given."""
        timeout = asyncio.timeout_at(self._at)
        try:
            async with timeout:
                self._waiting = timeout
                return await awaitable
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._error or DeadlineExceeded(
                f"The request ran longer than {self._limit_s:g} s, which is the server's limit."
            ) from None
        finally:
            self._waiting = None


class RunningRequests:
    """All requests that have not ended, so that a server that stops can end them with a reason."""

    def __init__(self, limit_s: float | None) -> None:
        """limit_s: how long each may run; None is as long as it wants."""
        self._limit_s = limit_s
        self._deadlines: set[Deadline] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    @contextmanager
    def enter(self) -> Generator[Deadline]:
        """Count a request while the block runs."""
        deadline = Deadline(self._limit_s)
        self._deadlines.add(deadline)
        try:
            yield deadline
        finally:
            self._deadlines.discard(deadline)

    def expire_all(self, error: JanServeError) -> None:
        """End every running request with this error."""
        for deadline in list(self._deadlines):
            deadline.expire(error)
