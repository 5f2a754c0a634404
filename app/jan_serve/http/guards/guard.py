"""Base of the guards, which reject or pass a request by its head alone; and the one of a server that drains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from jan_serve.http.errors import Envelopes, HttpError, draining_problem
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import record_of

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods without side effects (RFC 9110, section 9.2.1)."""


class Guard(ABC):
    """Runs `check` on every HTTP request. Closes websockets, which no route takes."""

    def __init__(self, app: ASGIApp, envelopes: Envelopes) -> None:
        self.app = app
        self._envelopes = envelopes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            self.check(scope)
        except HttpError as error:
            record = record_of(scope)
            record.error = error.problem.code
            response = self._envelopes.render(scope["path"], error.problem, record.request_id)
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    @abstractmethod
    def check(self, scope: Scope) -> None:
        """Raises HttpError to reject. Must use scope["path"], never a URL that Host could shape."""


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header, in order. `name` in lower case."""
    return [value for key, value in scope["headers"] if key == name]


_OPEN_PATHS: Final = frozenset({"/health", "/metrics"})


class DrainGuard(Guard):
    def __init__(
        self, app: ASGIApp, *, envelopes: Envelopes, lifecycle: Lifecycle, open_paths: Iterable[str] = ()
    ) -> None:
        """open_paths: served during the drain, besides the server's own."""
        super().__init__(app, envelopes)
        self._open_paths = _OPEN_PATHS | frozenset(open_paths)
        self._lifecycle = lifecycle

    def check(self, scope: Scope) -> None:
        """Raises 503 while the server drains."""
        if self._lifecycle.draining and scope["path"] not in self._open_paths:
            raise HttpError(draining_problem())
