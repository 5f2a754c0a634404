"""Notifies the service manager that started the server, and stops an idle server that it starts again on demand.

systemd: sd_notify(3), datagrams to the socket in NOTIFY_SOCKET.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final


class ServerObserver:
    """Base that does nothing. Called on the event loop; must not block or raise."""

    def listening(self, stop: Callable[[], None]) -> None:
        """The server accepts requests. stop: begins a drain like SIGTERM; callable from any thread."""

    def alive(self, idle_s: float) -> None:
        """Called about once a second while the event loop runs, also during a drain.

        idle_s: time without an open request or a model in memory; probes such as /health do not count.
        """

    def stopping(self, drain_s: float) -> None:
        """Running requests have `drain_s` to end. A second call shortens it."""


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


_notify_log: Final = logging.getLogger("jan_serve.daemon")


class SystemdNotifier(ServerObserver):
    """Sends readiness, watchdog and stop messages. Never blocks, never raises."""

    def __init__(self, address: str) -> None:
        """address: as in NOTIFY_SOCKET; a leading @ means Linux's abstract namespace."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def listening(self, stop: Callable[[], None]) -> None:
        self._send("READY=1\nSTATUS=Serving")

    def alive(self, idle_s: float) -> None:
        self._send("WATCHDOG=1")

    def stopping(self, drain_s: float) -> None:
        from jan_serve.daemon.plan import STOP_MARGIN_S  # not needed for the start

        # Running requests may need longer than TimeoutStopSec=.
        microseconds = int((drain_s + STOP_MARGIN_S) * 1e6)
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=Finishing running requests")

    def close(self) -> None:
        self._socket.close()

    def _send(self, message: str) -> None:
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            _notify_log.debug("cannot send %s to systemd: %s", message.splitlines()[0], error.strerror)


def systemd_notifier(environment: MutableMapping[str, str] = os.environ) -> SystemdNotifier | None:
    """The notifier if systemd expects one. Removes the variable, so that child processes do not notify."""
    address = environment.pop("NOTIFY_SOCKET", None)
    if not address or address[0] not in "/@" or not hasattr(socket, "AF_UNIX"):
        return None
    return SystemdNotifier(address)
