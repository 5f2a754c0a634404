"""Lingering close: answers that close the connection arrive even if the client is still sending its request."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.http.guards.guard import header_values

LINGER_S: Final = 1.5
"""Limit on reading the rest of a body; shorter than the grace period of a server that stops."""


class Lingering:
    """Delays the end of an answer that closes the connection until the request body has been read and discarded.

    Closing a socket with unread bytes sends RST, which can discard the answer on the client's side, or its own send
    fails before it reads. The content of the answer is sent first. A client that waits for `100 Continue` is excluded:
    reading would make it send the body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        await self.app(scope, exchange.receive, exchange.send)


class _Exchange:
    """The receive and send of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._closes = scope["http_version"] == "1.0" or _has_close(header_values(scope, b"connection"))
        self._waits = any(value.lower() == b"100-continue" for value in header_values(scope, b"expect"))
        self._is_read = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._waits = False
        self._is_read = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message.get("more_body", False):
            await self._send(message)
            return
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            values = [value for name, value in headers if name.lower() == b"connection"]
            self._closes = self._closes or _has_close(values)
        elif (
            self._closes and not self._is_read and not self._waits and message["type"] == "http.response.body"
        ):
            await self._send({**message, "more_body": True})
            await self._discard()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _discard(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not self._is_read:
                    await self.receive()


def _has_close(values: list[bytes]) -> bool:
    return any(token.strip().lower() == b"close" for value in values for token in value.split(b","))
