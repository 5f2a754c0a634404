"""A monotonic clock that a test advances, and a timer that follows it."""

from __future__ import annotations

import asyncio


class TurnedClock:
    """Use the object itself as clock, and `wait` as timer."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._turned = asyncio.Event()

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> None:
        """Advance the clock; waiters whose time has come continue."""
        self.now += seconds
        self._turned.set()
        self._turned = asyncio.Event()

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait for the event, or until the clock has advanced this far."""
        until = None if seconds is None else self.now + seconds
        while not event.is_set() and (until is None or self.now < until):
            waits = [asyncio.ensure_future(each.wait()) for each in (event, self._turned)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
