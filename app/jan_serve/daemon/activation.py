"""Socket activation: takes over the listening socket of the service manager that started the server.

systemd: sd_listen_fds(3), descriptors from 3 on, listed in the environment. launchd: launch_activate_socket(3).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import MutableMapping
from typing import Any, Final

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
    the socket in the property list. Raises WrongSocket.
    """
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
