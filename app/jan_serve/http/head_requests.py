"""HEAD: the answer of GET without its body (RFC 9110, section 9.3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_END: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": False}


class HeadRequests:
    """ASGI middleware inside the guards: routes see a GET. An answer that streams ends after its head."""

    def __init__(self, app: ASGIApp, *, own_paths: Iterable[str] = ()) -> None:
        """own_paths: prefixes below which routes answer HEAD themselves."""
        self._app = app
        self._own_paths = tuple(own_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if not is_head or scope["path"].startswith(self._own_paths):
            await self._app(scope, receive, send)
            return
        ended = False

        async def without_body(message: Message) -> None:
            nonlocal ended
            # The server below drops the body of an answer to HEAD, and the log names the request's own method.
            scope["method"] = "HEAD"
            if message["type"] != "http.response.body":
                await send(message)
            elif not ended:
                ended = True
                await send(_END)

        async def until_ended() -> Message:
            return {"type": "http.disconnect"} if ended else await receive()

        scope["method"] = "GET"
        await self._app(scope, until_ended, without_body)


def with_head(methods: Iterable[str]) -> set[str]:
    """The methods that a route with these has."""
    found = set(methods)
    return found | {"HEAD"} if "GET" in found else found
