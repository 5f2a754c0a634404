"""When to stop waiting for a node that takes requests and answers nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from jan_serve.proxy.upstream.connection import Failure, NodeFailure


@contextlib.asynccontextmanager
async def patience(seconds: float, next_look_s: Callable[[], float]) -> AsyncGenerator[None]:
    """Look after so many seconds in the block, and again when a look says. Raises NodeFailure (SILENT) if that is 0."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        nonlocal timer
        again_s = next_look_s()
        if again_s:
            timer = loop.call_later(again_s, look)
        else:
            limit.reschedule(loop.time())

    timer = loop.call_later(seconds, look)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError:
        raise NodeFailure(Failure.SILENT, f"answered nobody for {seconds:.0f} s") from None
    finally:
        timer.cancel()
