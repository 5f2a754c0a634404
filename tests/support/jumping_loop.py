"""An event loop whose clock jumps to the next timer, so that hours pass in no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing is left that could happen")
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, for code that waits for timers alone: no threads, no processes."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main)
