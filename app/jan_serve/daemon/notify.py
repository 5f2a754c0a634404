"""Tells systemd what the service is doing: sd_notify(3), a datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

_log: Final = logging.getLogger("jan_serve.daemon")
_AFTER_DRAIN_S: Final = 15.0
"""For workers to end and for the last answers to be written, after the running requests."""


class SystemdNotifier:
    """A ServerObserver that passes on that the server listens, is alive and stops. Never blocks, never raises."""

    def __init__(self, address: str) -> None:
        """address: as in NOTIFY_SOCKET; a leading @ is a name in Linux's abstract namespace."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def listening(self, stop: Callable[[], None]) -> None:
        """Part of ServerObserver."""
        self._send("READY=1\nSTATUS=Serving")

    def alive(self, idle_s: float) -> None:
        """Part of ServerObserver: feeds WatchdogSec=."""
        self._send("WATCHDOG=1")

    def stopping(self, drain_s: float) -> None:
        """Part of ServerObserver: TimeoutStopSec= does not know how long requests may take to end."""
        microseconds = int((drain_s + _AFTER_DRAIN_S) * 1e6)
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=Finishing running requests")

    def close(self) -> None:
        """No more messages."""
        self._socket.close()

    def _send(self, message: str) -> None:
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            _log.debug("systemd was not told %s: %s", message.splitlines()[0], error.strerror)


def systemd_notifier(environment: MutableMapping[str, str] = os.environ) -> SystemdNotifier | None:
    """The notifier where systemd waits for one. The variable is removed: only this process speaks for the service."""
    address = environment.pop("NOTIFY_SOCKET", None)
    if not address or address[0] not in "/@" or not hasattr(socket, "AF_UNIX"):
        return None
    return SystemdNotifier(address)
