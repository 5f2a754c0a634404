"""Whether the server drains, and how many requests are open. Event loop only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Lifecycle:
    def __init__(self) -> None:
        self.draining = False
        self._started = time.monotonic()
        self._open = 0
        self._last_end = self._started
        self._idle = asyncio.Event()
        self._idle.set()
        self._bodies: set[asyncio.Timeout] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_over = False

    @property
    def open_requests(self) -> int:
        return self._open

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def idle_s(self) -> float:
        """Time since the last counted request ended; 0 while one is open."""
        return 0.0 if self._open else time.monotonic() - self._last_end

    @contextmanager
    def request(self, *, counted: bool) -> Generator[None]:
        """The request of this task is open while the block runs."""
        if not counted:
            yield
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._tasks.discard(task)
            self._open -= 1
            self._last_end = time.monotonic()
            if self._open == 0:
                self._idle.set()

    @contextmanager
    def body(self, timeout: asyncio.Timeout) -> Generator[None]:
        """A part of a request's body is awaited while the block runs, within this running timeout."""
        self._bodies.add(timeout)
        try:
            yield
        finally:
            self._bodies.discard(timeout)

    def drain(self) -> None:
        """Take no more requests; the timeouts of those whose bodies are on their way expire."""
        self.draining = True
        for timeout in self._bodies:
            if not timeout.expired():  # an expired one cannot be changed
                timeout.reschedule(0.0)

    def end(self) -> None:
        """Cancel the open requests, which end with an error."""
        self.is_over = True
        for task in self._tasks:
            task.cancel()

    async def wait_idle(self) -> None:
        await self._idle.wait()
