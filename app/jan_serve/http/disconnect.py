"""Cancels the work on an answer when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from jan_serve.http.errors import ClientGone

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, and cancel it if the client disconnects. The request's body must have been read.

    Raises ClientGone, and what `work` raises.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        gone.cancel()
        working.cancel()
        # Its clean-up must end before the request does.
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
