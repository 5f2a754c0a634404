"""A uvicorn server that drains: running requests finish, new ones are rejected."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from functools import partial
from types import FrameType
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp

from jan_serve.daemon.running import InheritedSocket, ServerObserver
from jan_serve.http.connection import HttpConnection
from jan_serve.http.lifecycle import Lifecycle

logger = logging.getLogger(__name__)

_CLOSING_S: Final = 2.0
"""Lets the last error events reach their readers after every request has ended."""
_CLOSING_STEPS: Final = 10
_LOOK_S: Final = 0.1
_TURNS_OF_AN_END: Final = 3
"""Turns of the event loop until a connection that has been closed is gone."""
_TICK_S: Final = 1.0
"""Interval between updates of the Date header, the only work of an idle server."""


class DrainingServer(uvicorn.Server, ABC):
    """First SIGTERM or SIGINT: new requests are rejected, running ones get `drain_s`. Second: everything ends now.

    SIGHUP, the end of a terminal, does the same unless it is ignored (nohup). Does not re-raise the signal: a server
    that stops on request exits with status 0.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        lifecycle: Lifecycle,
        drain_s: float,
        observer: ServerObserver | None = None,
    ) -> None:
        super().__init__(config)
        self._observer = observer or ServerObserver()
        self._lifecycle = lifecycle
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sockets: list[socket.socket] = []
        self.listening = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def finish(self, drain_s: float) -> None:
        """End what runs requests; after `drain_s`, end the requests."""

    def idle_s(self) -> float:
        """How long there has been nothing to do. 0 while a connection waits for its first request."""
        connections: set[Any] = self.server_state.connections
        is_new = any(each.cycle is None for each in connections)
        return 0.0 if is_new else self._lifecycle.idle_s

    async def attend(self, idle_s: float) -> None:
        """Called each second while the server runs."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        with super().capture_signals(), self._hang_ups_captured():
            yield

    @contextlib.contextmanager
    def _hang_ups_captured(self) -> Generator[None]:
        is_main = threading.current_thread() is threading.main_thread()
        number = getattr(signal, "SIGHUP", None)  # Windows has none
        if not is_main or number is None or signal.getsignal(number) is signal.SIG_IGN:
            yield
            return
        before = signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            signal.signal(number, before)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._sockets = sockets or []
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's; whom the system has accepted since the last turn of the event loop is served, too."""
        accepted = [connection for sock in self._sockets for connection in _accepted(sock)]
        for each in (*self.servers, *self._sockets):
            each.close()
        kind: Any = self.config.http_protocol_class
        make = partial(
            kind, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        for connection in accepted:
            await asyncio.get_running_loop().connect_accepted_socket(make, connection)
        for idle in list(self.server_state.connections):
            idle.shutdown()
        for _ in range(_TURNS_OF_AN_END):
            await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:  # uvicorn would wait for nobody, too
            await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # A terminal that closes sends SIGHUP after Ctrl-C or the service manager's signal: no second wish to end.
        if self._lifecycle.draining and sig == getattr(signal, "SIGHUP", None):
            return
        if self._loop is not None:
            self._stop_soon()
        else:
            self.should_exit = True

    def _stop_soon(self) -> None:
        """Like `stop`, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.stop)

    async def main_loop(self) -> None:
        """Replaces uvicorn's loop, which wakes ten times a second."""
        self._loop = asyncio.get_running_loop()
        self.listening.set()
        self._observer.listening(self._stop_soon)
        while not self.should_exit:
            await self.on_tick(0)
            idle_s = self.idle_s()
            self._observer.alive(idle_s)
            try:
                await self.attend(idle_s)
            except Exception:  # a lack of threads or memory passes; the requests go on
                logger.exception("the server cannot attend to its helpers")
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._stop.wait()
            except TimeoutError:
                await asyncio.sleep(0)  # those who came while the process stood still are accepted
                continue
            self.should_exit = True

    def stop(self) -> None:
        """Begin to drain; during a drain, end everything now. On the event loop; returns at once."""
        first = not self._lifecycle.draining
        drain_s = self._drain_s if first else 0.0
        # Logged before the drain is visible, because followers of the log disconnect then.
        logger.info("stopping: running requests have %.0f s", drain_s)
        self._lifecycle.drain()
        if not self._lifecycle.open_requests:
            # Those who connect to an inherited socket wait for the next server, which is there soon.
            for number, sock in enumerate(self._sockets):
                if isinstance(sock, InheritedSocket):
                    self.servers[number].close()
        self._observer.stopping(drain_s)
        task = asyncio.get_running_loop().create_task(self._end(drain_s), name="drain")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, drain_s: float) -> None:
        until = asyncio.get_running_loop().time() + drain_s
        try:
            await self.finish(drain_s)
            if not await self._are_over():
                logger.warning("%d requests did not end in time", self._lifecycle.open_requests)
                self._lifecycle.end()
                self.force_exit = not await self._are_over()
            await self._taken(until)
        finally:
            self._stop.set()

    async def _taken(self, until: float) -> None:
        """Wait until the clients have taken their answers, as far as the time of the drain reaches."""
        loop, connections = asyncio.get_running_loop(), cast(set[Any], self.server_state.connections)
        while loop.time() < until and any(each.transport.get_write_buffer_size() for each in connections):
            await asyncio.sleep(_LOOK_S)

    async def _are_over(self) -> bool:
        """Wait for the requests, in steps: what is due has its time also if the process stood still."""
        for _ in range(_CLOSING_STEPS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_S / _CLOSING_STEPS):
                    await self._lifecycle.wait_idle()
                return True
        return False


def _accepted(sock: socket.socket) -> Iterator[socket.socket]:
    """Those that wait at a socket, which does not block."""
    if isinstance(sock, InheritedSocket):
        return
    with contextlib.suppress(OSError):
        while True:
            yield sock.accept()[0]


def server_config(
    app: ASGIApp, connection: type[HttpConnection] = HttpConnection, *, believes_forwarded: bool = True
) -> uvicorn.Config:
    """believes_forwarded: take the client's address and scheme from X-Forwarded-For and -Proto of a proxy here."""
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=believes_forwarded,
        forwarded_allow_ips=["127.0.0.1", "::1"],  # uvicorn would ask the environment
        timeout_graceful_shutdown=2,  # seconds after the last answer: longer than connections linger
    )
