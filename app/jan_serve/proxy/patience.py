"""When to stop waiting for a node that takes requests and does not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from jan_serve.proxy.upstream.connection import NodeFailure


@contextlib.asynccontextmanager
async def patience(seconds: float, next_look_s: Callable[[], float]) -> AsyncGenerator[None]:
    """Look after so many seconds in the block, and again when a look says. Raises the NodeFailure of a look."""
    loop = asyncio.get_running_loop()
    given_up: NodeFailure | None = None

    def look() -> None:
        nonlocal given_up, timer
        try:
            timer = loop.call_later(next_look_s(), look)
        except NodeFailure as failure:
            given_up = failure
            limit.reschedule(loop.time())

    timer = loop.call_later(seconds, look)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError:
        if given_up is None:
            raise
        raise given_up from None
    finally:
        timer.cancel()
