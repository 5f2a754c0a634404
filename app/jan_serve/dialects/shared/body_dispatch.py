"""A path that two protocols share: the body of a request says whose it is."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.http.errors import HttpError
from jan_serve.http.paths import reroute


class BodyDispatch:
    """Innermost middleware. Reroutes the requests to a shared path whose body is the other protocol's."""

    def __init__(self, app: ASGIApp, *, shared: str, other: str, is_other: Callable[[bytes], bool]) -> None:
        """other: the path of the other protocol. is_other: whether a body is its."""
        self._app = app
        self._shared = shared
        self._other = other
        self._is_other = is_other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._shared or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = _ReadBody(receive)
        if self._is_other(await body.read()):
            reroute(scope, self._other)
        await self._app(scope, body, send)


class _ReadBody:
    """An ASGI receive that reads ahead. An error while reading ahead is raised to the next reader."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []
        self._error: HttpError | None = None

    async def read(self) -> bytes:
        """The whole body, or the part before the client disconnected or a limit was exceeded."""
        parts: list[bytes] = []
        more = True
        while more:
            try:
                message = await self._receive()
            except HttpError as error:
                self._error = error
                break
            self._messages.append(message)
            parts.append(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        self._messages.reverse()
        return b"".join(parts)

    async def __call__(self) -> Message:
        if self._messages:
            return self._messages.pop()
        if self._error is not None:
            raise self._error
        return await self._receive()
