"""When to stop waiting for a node that takes requests and does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from jan_serve.proxy.upstream.connection import NodeFailure


class Patience:
    """Looks after so many seconds in the block, and again when a look says. Raises the NodeFailure of a look.

    Cheaper than `asyncio.timeout` in a generator, which every request would pay for.
    """

    __slots__ = ("_failure", "_loop", "_n_cancelled", "_next_look_s", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float, next_look_s: Callable[[], float]) -> None:
        self._seconds = seconds
        self._next_look_s = next_look_s
        self._failure: NodeFailure | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._n_cancelled = task, task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def _look(self) -> None:
        try:
            self._timer = self._loop.call_later(self._next_look_s(), self._look)
        except NodeFailure as failure:
            self._failure = failure
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._failure is None:
            return
        is_ours = self._task.uncancel() <= self._n_cancelled
        if is_ours and kind is asyncio.CancelledError:
            raise self._failure from None
