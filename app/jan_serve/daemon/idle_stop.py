"""Stops an idle socket-activated server: the next connection starts it again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jan_serve.daemon.observer import ServerObserver

_log = logging.getLogger("jan_serve.daemon")


class IdleStop(ServerObserver):
    """Stops the server after `limit_s` idle seconds, and forwards all events to `inner`."""

    def __init__(self, limit_s: float, inner: ServerObserver | None) -> None:
        self._limit_s = limit_s
        self._inner = inner or ServerObserver()
        self._stop: Callable[[], None] | None = None

    def listening(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._inner.listening(stop)

    def alive(self, idle_s: float) -> None:
        self._inner.alive(idle_s)
        if idle_s >= self._limit_s and self._stop is not None:
            _log.info("idle for %.0f s: stopping until the next connection", idle_s)
            stop, self._stop = self._stop, None
            stop()

    def stopping(self, drain_s: float) -> None:
        self._inner.stopping(drain_s)
