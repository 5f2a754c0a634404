"""Time that a test moves: a monotonic clock, and waiting that goes by it."""

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
        """Let so much time pass; who waits for a part of it goes on."""
        self.now += seconds
        self._turned.set()
        self._turned = asyncio.Event()

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Until the event, or until that much time was turned on."""
        until = None if seconds is None else self.now + seconds
        while not event.is_set() and (until is None or self.now < until):
            waits = [asyncio.ensure_future(each.wait()) for each in (event, self._turned)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
