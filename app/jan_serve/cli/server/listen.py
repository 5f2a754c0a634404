"""Opens the listening socket before the server starts, so that only one of two simultaneous starts succeeds."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import socket
import time
from typing import Any, Final, cast

import msgspec
import psutil

from jan_serve.cli.errors import WrongUse
from jan_serve.core.hosts import is_everywhere, url_of_host

_BACKLOG: Final = 2048
_PAUSES_S: Final = (0.01, 0.1, 0.5)
"""Pauses before listen() is tried again: each at random, at most this long."""
_HEALTH_TIMEOUT_S: Final = 2.0
_MAX_HEALTH_BYTES: Final = 64 * 1024
_HEALTH_FIELDS: Final = frozenset(
    {"status", "state", "version", "pid", "uptime_s", "open_requests", "models"}
)


class PortHolder(msgspec.Struct, frozen=True):
    """The process that listens on a port, as far as known."""

    is_jan_serve: bool
    pid: int | None = None
    name: str | None = None

    @property
    def description(self) -> str:
        name = "jan-serve" if self.is_jan_serve else self.name or "another program"
        return f"{name} (pid {self.pid})" if self.pid is not None else name


class AddressUnavailable(WrongUse):
    """The address is in use, not an address of this machine, or not permitted."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Choose another port with --port, or any free one with --port 0.")


class AlreadyServing(Exception):
    """Another jan-serve already listens on the port."""

    def __init__(self, port: int, holder: PortHolder) -> None:
        pid = f" (pid {holder.pid})" if holder.pid is not None else ""
        super().__init__(f"already running on port {port}{pid}")
        self.holder = holder


def listen(host: str, port: int) -> socket.socket:
    """Listen on the address; port 0 means a free port.
    Raises AlreadyServing if a jan-serve has the port, AddressUnavailable for any other reason."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AddressUnavailable(f"unknown host name {host}: {error.strerror}") from None
    family, _, _, _, address = min(addresses, key=lambda found: found[0] != socket.AF_INET)
    pauses = iter(_PAUSES_S)
    while True:
        sock = socket.socket(family, socket.SOCK_STREAM)
        bound = False
        try:
            # Ignores connections in TIME_WAIT; a second listener still fails, at the latest in listen().
            exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)  # of Windows
            sock.setsockopt(socket.SOL_SOCKET, exclusive, 1)
            sock.bind(address)
            bound = True
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            pause_s = next(pauses, None)
            # A port with a listener fails in bind(). Of two that are bound at once, Linux may reject both in listen().
            if not bound or error.errno != errno.EADDRINUSE or pause_s is None:
                raise _explain(error, host, port) from None
            time.sleep(random.uniform(0.0, pause_s))
        else:
            sock.setblocking(False)
            return sock


def listen_also(host: str, port: int) -> socket.socket:
    """Listen on a further port (setting also_listen). Raises CommandError."""
    try:
        return listen(host, port)
    except AlreadyServing as running:
        reason = f"port {port} is in use by {running.holder.description}"
    except AddressUnavailable as error:
        reason = error.message
    hint = "Stop that program, or leave out --also-listen."
    raise WrongUse(f"also_listen: {reason}", hint)


def url_of(sock: socket.socket) -> str:
    """The URL of the socket for clients on this machine."""
    return url_of_host(*sock.getsockname()[:2])


def _explain(error: OSError, host: str, port: int) -> AddressUnavailable | AlreadyServing:
    if error.errno == errno.EADDRINUSE:
        holder = find_holder(host, port)
        if holder.is_jan_serve:
            return AlreadyServing(port, holder)
        return AddressUnavailable(f"port {port} is in use by {holder.description}")
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressUnavailable(f"{host} is not an address of this machine")
    if error.errno in (errno.EACCES, errno.EPERM):
        return AddressUnavailable(f"this user is not permitted to use port {port}")
    return AddressUnavailable(f"cannot listen on {host} port {port}: {error.strerror}")


def find_holder(host: str, port: int) -> PortHolder:
    """Find the listener on `port` in the process table or, without permission for that, over HTTP."""
    pid = _listening_pid(port)
    name = None
    if pid is not None:
        try:
            process = psutil.Process(pid)
            name, command = process.name(), process.cmdline()
            if is_our_command(command):
                # A child that it has just forked has the socket, too, until it executes another program.
                while (parent := process.parent()) is not None and parent.cmdline() == command:
                    process = parent
                return PortHolder(is_jan_serve=True, pid=process.pid)
        except psutil.Error:
            pass  # the process ended or belongs to another user: try HTTP
    health = _ask_health(host, port)
    if health is not None:
        reported = health.get("pid")
        return PortHolder(is_jan_serve=True, pid=reported if isinstance(reported, int) else pid)
    return PortHolder(is_jan_serve=False, pid=pid, name=name)


def _listening_pid(port: int) -> int | None:
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    for each in connections:
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port:
            return each.pid
    return None


def is_our_command(command: list[str]) -> bool:
    """Whether this is `jan-serve …` or `python [options] -m jan_serve …`."""
    names = [os.path.basename(word).removesuffix(".exe") for word in command[:2]]
    if "jan-serve" in names:
        return True
    options = list(itertools.takewhile(lambda word: word not in ("-m", "-c"), command[1:]))
    return command[1 + len(options) :][:2] == ["-m", "jan_serve"]


def _ask_health(host: str, port: int) -> dict[str, Any] | None:
    """The answer of /health; None if it is not from a jan-serve."""
    # Only a port that is taken needs these.
    import urllib.error
    import urllib.request

    address = url_of_host("127.0.0.1" if is_everywhere(host) else host, port)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        try:
            response = opener.open(f"{address}/health", timeout=_HEALTH_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            response = error  # also has a body: 503 while loading or draining
        with response:
            body = json.loads(response.read(_MAX_HEALTH_BYTES))
    except (OSError, ValueError):
        return None
    health = cast(dict[str, Any], body) if isinstance(body, dict) else {}
    return health if health.keys() >= _HEALTH_FIELDS else None
