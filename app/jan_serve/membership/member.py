"""Keeps this server registered at a proxy, ours or LMDeploy's, while it listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from jan_serve.core.hosts import is_loopback
from jan_serve.daemon.observer import ServerObserver
from jan_serve.membership.registration import Membership, Registration

logger = logging.getLogger(__name__)

RENEW_S: Final = 30.0
FIRST_RETRY_S: Final = 1.0
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})


def node_url(host: str, port: int, proxy_url: str, role: str) -> str:
    """This server's URL for a proxy. Blocks for a look-up of the proxy's name if the server listens on every address.

    Prefill and decode nodes are called by LMDeploy's routes, which have the fields for moving states.
    """
    if host in _WILDCARDS:
        host = address_towards(proxy_url) or host
    elif is_loopback(host):
        host = "127.0.0.1" if host == "localhost" else host
    path = "" if role == "hybrid" else "/lmdeploy"
    return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


def address_towards(url: str) -> str | None:
    """The address of this machine from which it reaches the URL. None if there is no way.

    Sends nothing, and blocks for a look-up of the name.
    """
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        for family, kind, protocol, _, address in found:
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None
    return None


class ProxyMember(ServerObserver):
    """Registers when the server listens, and tries until it is stopped; withdraws when the server drains.

    inner: another observer, which gets the same calls.
    """

    def __init__(
        self,
        membership: Callable[[], Membership],
        inner: ServerObserver | None = None,
        *,
        renew_s: float = RENEW_S,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        """membership: called in a thread, each time before the server registers: its address may have changed."""
        self._membership = membership
        self._inner = inner or ServerObserver()
        self._renew_s = renew_s
        self._first_retry_s = first_retry_s
        self._registration = Registration()
        self._current: Membership | None = None
        self._problem: str | None = None
        self._is_first = True
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listening(self, stop: Callable[[], None]) -> None:
        self._inner.listening(stop)
        self._task = asyncio.create_task(self._stay_registered(), name="proxy membership")

    def alive(self, idle_s: float) -> None:
        self._inner.alive(idle_s)

    def stopping(self, drain_s: float) -> None:
        self._inner.stopping(drain_s)
        self._stopped.set()

    async def left(self) -> None:
        """Wait until the proxy has the news, or does not answer."""
        if self._task is not None:
            await self._task

    async def _stay_registered(self) -> None:
        retry_s = self._first_retry_s
        while not self._stopped.is_set():
            problem = await self._register()
            self._note(problem)
            if problem is None:
                retry_s = self._first_retry_s
                await self._pause(self._renew_s)
            else:
                await self._pause(retry_s)
                retry_s = min(self._renew_s, retry_s * 2)
        await self._withdraw()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    def _note(self, problem: str | None) -> None:
        """Log what changed: a proxy that is away for a night fills no log."""
        assert self._current is not None
        if problem is not None and problem != self._problem:
            logger.warning("not registered at the proxy %s: %s", self._current.proxy_url, problem)
        elif problem is None and (self._problem is not None or self._is_first):
            logger.info("registered at the proxy %s as %s", self._current.proxy_url, self._current.url)
            self._is_first = False
        self._problem = problem

    async def _register(self) -> str | None:
        """Why it failed, if it did."""
        self._current = await asyncio.to_thread(self._membership)
        return await self._registration.renew(self._current)

    async def _withdraw(self) -> None:
        if self._current is not None:
            problem = await self._registration.withdraw(self._current)
            if problem is not None:
                logger.warning("not removed from the proxy: %s", problem)
