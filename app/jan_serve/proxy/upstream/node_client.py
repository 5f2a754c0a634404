"""Requests to nodes over connections that are reused. No environment proxies, redirects, cookies or decoding."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final

import msgspec

from jan_serve.proxy.upstream.connection import AnswerHead, Failure, NodeConnection, NodeFailure
from jan_serve.proxy.upstream.node_address import NodeNetworks, NodeUrl

CONNECT_S: Final = 3.0
MAX_REPLY_BYTES: Final = 1 << 20
_MAX_IDLE: Final = 64
_IDLE_S: Final = 20.0
_IDLE_CLOSE_S: Final = 1.0
"""Seconds after a request is sent: a later reset without an answer is not the close of an idle connection. The node
may have worked on the request, which may be what ended it."""

Headers = Sequence[tuple[bytes, bytes]]


class OutsideNetworks(NodeFailure):
    """The name leads to an address where no node may be."""


class Exchange(msgspec.Struct, frozen=True):
    """An answer that is being read. Give it back with `NodeClient.done`, or abort it."""

    connection: NodeConnection
    origin: tuple[str, str, int]
    head: AnswerHead


class NodeClient:
    """Event loop only. key: of the nodes. tls: for https nodes; the system's certificates if None."""

    def __init__(
        self,
        networks: NodeNetworks,
        *,
        key: str | None = None,
        connect_s: float = CONNECT_S,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._networks = networks
        self._key_headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
        self._connect_s = connect_s
        self._tls = tls
        self._clock = clock
        self._idle: defaultdict[tuple[str, str, int], list[NodeConnection]] = defaultdict(list)
        self._timers: dict[NodeConnection, asyncio.TimerHandle] = {}

    async def begin(
        self, url: NodeUrl, method: str, path: str, headers: Headers, body: bytes, *, limit_s: float | None
    ) -> Exchange:
        """Send a request, and wait up to `limit_s`, if any, for the head of its answer. Raises NodeFailure.

        The node may have closed a connection that was open in this moment: then the request goes over a new one. If the
        node takes none, the first failure counts, because the node may have had the request.
        """
        request = _request(url, method, path, headers, body)
        origin = (url.scheme, url.host, url.port)
        reset: NodeFailure | None = None
        while (connection := self._take(origin)) is not None:
            sent_s = self._clock()
            try:
                return Exchange(connection, origin, await self._exchange(connection, request, limit_s))
            except NodeFailure as failure:
                is_unanswered = failure.kind is Failure.RESET and not connection.was_answered
                if not is_unanswered or self._clock() - sent_s > _IDLE_CLOSE_S:
                    raise
                reset = reset or failure
        try:
            connection = await self._connect(url)
        except NodeFailure as failure:
            raise reset or failure from None
        return Exchange(connection, origin, await self._exchange(connection, request, limit_s))

    def done(self, exchange: Exchange) -> None:
        """Keep the connection for another request if its answer was read to the end; else drop it."""
        connection, idle = exchange.connection, self._idle[exchange.origin]
        if not connection.is_reusable:
            connection.abort()
        elif len(idle) >= _MAX_IDLE:
            connection.close()
        else:
            idle.append(connection)
            connection.on_idle_lost = partial(self._drop, exchange.origin)
            loop = asyncio.get_running_loop()
            self._timers[connection] = loop.call_later(_IDLE_S, self._expire, exchange.origin, connection)

    async def fetch(
        self,
        url: NodeUrl,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes = b"",
        *,
        limit_s: float,
        max_bytes: int = MAX_REPLY_BYTES,
    ) -> tuple[AnswerHead, bytes]:
        """A whole answer within `limit_s`. Raises NodeFailure, also for a longer one."""
        try:
            async with asyncio.timeout(limit_s):
                exchange = await self.begin(url, method, path, headers, body, limit_s=limit_s)
                content = bytearray()
                try:
                    while part := await exchange.connection.read(limit_s):
                        content += part
                        if len(content) > max_bytes:
                            raise NodeFailure(Failure.PROTOCOL, f"sent more than {max_bytes} bytes")
                finally:
                    self.done(exchange)
                return exchange.head, bytes(content)
        except TimeoutError:
            raise NodeFailure(Failure.TIMEOUT, f"did not answer within {limit_s:g} s") from None

    async def fetch_json(
        self,
        url: NodeUrl,
        method: str,
        path: str,
        body: object = None,
        *,
        limit_s: float,
        max_bytes: int = MAX_REPLY_BYTES,
    ) -> tuple[int, Any]:
        """Ask with the key. Status and JSON content; None for content that is not JSON. Raises NodeFailure."""
        sent, headers = b"", self._key_headers
        if body is not None:
            sent, headers = msgspec.json.encode(body), [*headers, (b"content-type", b"application/json")]
        head, content = await self.fetch(
            url, method, path, headers, sent, limit_s=limit_s, max_bytes=max_bytes
        )
        try:
            return head.status, msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return head.status, None

    def close(self) -> None:
        """Close the connections that wait for a request."""
        for origin in list(self._idle):
            for connection in self._idle.pop(origin):
                self._timers.pop(connection).cancel()
                connection.close()

    async def _exchange(
        self, connection: NodeConnection, request: bytes, limit_s: float | None
    ) -> AnswerHead:
        try:
            connection.send(request)
            return await connection.head(limit_s)
        except BaseException:
            connection.abort()
            raise

    def _take(self, origin: tuple[str, str, int]) -> NodeConnection | None:
        while idle := self._idle.get(origin):
            connection = idle.pop()
            self._timers.pop(connection).cancel()
            connection.on_idle_lost = None
            if connection.is_reusable:
                return connection
        return None

    def _drop(self, origin: tuple[str, str, int], connection: NodeConnection) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._idle[origin].remove(connection)

    def _expire(self, origin: tuple[str, str, int], connection: NodeConnection) -> None:
        self._drop(origin, connection)
        connection.close()

    async def _connect(self, url: NodeUrl) -> NodeConnection:
        loop = asyncio.get_running_loop()
        tls = (self._tls or _system_tls()) if url.scheme == "https" else None
        reason = "has no address"
        try:
            async with asyncio.timeout(self._connect_s):
                for address in await self._addresses(url):
                    try:
                        _, connection = await loop.create_connection(
                            lambda: NodeConnection(loop),
                            address,
                            url.port,
                            ssl=tls,
                            server_hostname=url.host if tls is not None else None,
                        )
                        return connection
                    except ssl.SSLCertVerificationError as error:
                        reason = f"has no valid TLS ({error.verify_message})"
                    except ssl.SSLError as error:
                        reason = f"has no valid TLS ({error.reason or error})"
                    except OSError as error:
                        reason = f"cannot be reached ({os.strerror(error.errno or 0)})"
        except TimeoutError:
            reason = f"did not take a connection within {self._connect_s:g} s"
        raise NodeFailure(Failure.CONNECT, reason)

    async def _addresses(self, url: NodeUrl) -> list[str]:
        """Resolved for every connection, and checked every time: a name may lead elsewhere by now."""
        try:
            found = [ipaddress.ip_address(url.host)]
        except ValueError:
            loop = asyncio.get_running_loop()
            try:
                infos = await loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise NodeFailure(Failure.CONNECT, f"has an unknown name ({error.strerror})") from None
            except UnicodeError:  # of the codec for names, not of the resolver
                raise NodeFailure(Failure.CONNECT, "has a name that DNS cannot hold") from None
            found = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in infos]
        allowed = [str(address) for address in dict.fromkeys(found) if self._networks.allow(address)]
        if not allowed:
            raise OutsideNetworks(
                Failure.CONNECT,
                f"is at {found[0] if found else 'no address'}, outside the networks of nodes (--node-network)",
            )
        return allowed


@cache
def _system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()  # reads the certificates of the system: tens of milliseconds


def _request(url: NodeUrl, method: str, path: str, headers: Headers, body: bytes) -> bytes:
    """Header values come from parsed requests or from us: they have no line breaks."""
    lines = [
        f"{method} {url.path}{path} HTTP/1.1\r\nhost: {url.authority}\r\n".encode("latin-1"),
        *(b"%b: %b\r\n" % header for header in headers),
    ]
    if body or method == "POST":
        lines.append(b"content-length: %d\r\n" % len(body))
    return b"%b\r\n%b" % (b"".join(lines), body)
