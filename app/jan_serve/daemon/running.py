"""What the running service has of its manager: the socket, notifications, and an end when idle."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final

STOP_MARGIN_S: Final = 15.0
"""Time to stop after the running requests end: for workers to exit and the last answers to be sent."""
_FIRST_DESCRIPTOR: Final = 3
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class InheritedSocket(socket.socket):
    """The service manager keeps it open: who connects while no server accepts waits for the next one."""


class WrongSocket(Exception):
    """The server cannot serve on the inherited socket; the message gives the reason."""


def inherited_socket(
    environment: MutableMapping[str, str] = os.environ, *, launchd_name: str | None = None
) -> InheritedSocket | None:
    """The inherited listening TCP socket; None if the server must create its own.
    Removes the variables from the environment, so that child processes do not inherit them. launchd_name: the key of
    the socket in the property list. Raises WrongSocket."""
    values = {name: environment.pop(name, None) for name in _VARIABLES}
    if values["LISTEN_PID"] == str(os.getpid()) and values["LISTEN_FDS"]:
        count = values["LISTEN_FDS"]
        if count != "1":
            raise WrongSocket(f"the service manager passed {count} sockets instead of one")
        return _checked(_FIRST_DESCRIPTOR)
    if launchd_name is not None and sys.platform == "darwin":
        descriptors = launchd_descriptors(ctypes.CDLL(None), launchd_name)
        if len(descriptors) > 1:
            raise WrongSocket(f"launchd passed {len(descriptors)} sockets instead of one")
        return _checked(descriptors[0]) if descriptors else None
    return None


def launchd_descriptors(library: Any, name: str) -> list[int]:
    """The descriptors of launchd's socket `name`; empty if launchd did not start this process or has no such socket."""
    found = ctypes.POINTER(ctypes.c_int)()
    count = ctypes.c_size_t(0)
    if library.launch_activate_socket(name.encode(), ctypes.byref(found), ctypes.byref(count)) != 0:
        return []
    try:
        return [found[index] for index in range(count.value)]
    finally:
        library.free(found)


def _checked(descriptor: int) -> InheritedSocket:
    """The descriptor as a listening TCP socket, non-blocking and closed on exec."""
    try:
        sock = InheritedSocket(fileno=descriptor)
    except OSError as error:
        raise WrongSocket(f"descriptor {descriptor} is not a socket: {error.strerror}") from None
    try:
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
            raise WrongSocket("the socket of the service manager is not a TCP socket")
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise WrongSocket(
                "the socket of the service manager does not listen (Accept=yes is not supported)"
            )
        sock.set_inheritable(False)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


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
        # Running requests may need longer than TimeoutStopSec=.
        microseconds = int((drain_s + STOP_MARGIN_S) * 1e6)
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=Finishing running requests")

    def close(self) -> None:
        self._socket.close()

    def _send(self, message: str) -> None:
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError as error:
            _log.debug("cannot send %s to systemd: %s", message.splitlines()[0], error.strerror)


def systemd_notifier(environment: MutableMapping[str, str] = os.environ) -> SystemdNotifier | None:
    """The notifier if systemd expects one. Removes the variable, so that child processes do not notify."""
    address = environment.pop("NOTIFY_SOCKET", None)
    if not address or address[0] not in "/@" or not hasattr(socket, "AF_UNIX"):
        return None
    return SystemdNotifier(address)
