"""Clients that leave: the work on their answers ends. Hooks of the connection, absent under other ASGI servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from jan_serve.http.errors import ClientGone

_EXTENSION = "jan_serve.connection"


class ConnectionHooks(msgspec.Struct, frozen=True):
    """target: the request target as sent. abort: drop the connection and its buffered output."""

    target: bytes
    abort: Callable[[], None]


def attach_hooks(scope: Scope, hooks: ConnectionHooks) -> None:
    scope.setdefault("extensions", {})[_EXTENSION] = hooks


def hooks_of(scope: Scope) -> ConnectionHooks | None:
    extensions: dict[str, Any] = scope.get("extensions") or {}
    hooks = extensions.get(_EXTENSION)
    return hooks if isinstance(hooks, ConnectionHooks) else None


def abort_connection(scope: Scope) -> None:
    """Drop the connection, so that the client sees an incomplete answer as incomplete."""
    hooks = hooks_of(scope)
    if hooks is not None:
        hooks.abort()


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
