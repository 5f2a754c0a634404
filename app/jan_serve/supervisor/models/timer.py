"""Waiting for an event, for a limited time: the one place where the manager depends on time passing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Timer = Callable[[asyncio.Event, float | None], Awaitable[None]]
"""Returns when the event is set, or when so many seconds have passed; None is no limit."""


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """The timer of the event loop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
