"""Rejects new requests while the server drains: 503 with Retry-After, and the connection closes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Scope

from jan_serve.http.errors import Envelopes, HttpError, draining_problem
from jan_serve.http.guards.guard import Guard
from jan_serve.http.lifecycle import Lifecycle

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
