"""One HTTP/1.1 connection to a node: a request at a time, the answer's bytes as they come."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final

import httptools
import msgspec

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 200
MAX_INTERIM: Final = 100
"""Interim answers of one request; a node that sends 102 while it works sends one in seconds."""
MAX_OVERHEAD_BYTES: Final = 64 * 1024
"""Between two parts of a body, and behind it: chunk extensions and trailers."""
_STEP: Final = 16 * 1024
HIGH_WATER: Final = 256 * 1024
"""Bytes of an answer that wait for the client; then the node is not read, and waits too."""


class Failure(Enum):
    """How a node failed. CONNECT: nothing was sent. RESET: the connection ended. SILENT: it gives no sign of life, and
    another node can take the request. TIMEOUT, PROTOCOL: as they say. GAVE_UP: it says itself that the answer is lost
    there. LEAVES: another node should go on with the answer, and this one does if none can."""

    CONNECT = auto()
    RESET = auto()
    SILENT = auto()
    TIMEOUT = auto()
    PROTOCOL = auto()
    GAVE_UP = auto()
    LEAVES = auto()


class NodeFailure(Exception):
    """A node gave no answer, or only a part of it. The text ends a sentence about the node."""

    def __init__(self, kind: Failure, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class AnswerHead(msgspec.Struct, frozen=True):
    """headers: with names in lower case, in order."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def is_end(self) -> bool:
        """Whether the node takes no requests: it refuses this one, and closes the connection."""
        refuses = self.status == HTTPStatus.SERVICE_UNAVAILABLE
        return refuses and (self.header(b"connection") or b"").lower() == b"close"


class NodeConnection(asyncio.Protocol):
    """`send` begins an exchange; `head` and then `read` until empty give the answer. Event loop only.

    A body without length ends with the connection. A connection that breaks within a length or a chunked body is a
    NodeFailure, so that a part cannot pass for the whole.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: NodeFailure | None = None
        self._interruption: NodeFailure | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: AnswerHead | None = None
        self._interim = 0
        self._overhead = 0  # bytes since a head or a part of a body was complete
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._is_paused = False
        self._is_complete = True
        self._ends_with_connection = False
        self._keeps_alive = False
        self.was_answered = False
        """Whether any byte of the answer has come."""
        self.on_idle_lost: Any = None
        """Called when the node closes the connection between two exchanges."""

    @property
    def is_reusable(self) -> bool:
        return self._is_complete and self._keeps_alive and self._failure is None and not self._buffered

    @property
    def is_read(self) -> bool:
        """Whether the answer has come to its end, and `read` has returned all of it."""
        return self._is_complete and not self._chunks

    def send(self, request: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._interruption = None
        self._head, self._headers, self._interim, self._overhead = None, [], 0, 0
        self._is_complete = self._ends_with_connection = self._keeps_alive = self.was_answered = False
        self._transport.write(request)

    async def head(self, limit_s: float | None) -> AnswerHead:
        """The head of the answer, without interim ones. Raises NodeFailure."""
        while self._head is None:
            await self._wait(limit_s)
        return self._head

    async def read(self, limit_s: float | None) -> bytes:
        """The bytes that have come, at least one; empty at the end. Raises NodeFailure."""
        while not self._chunks:
            if self._is_complete:
                return b""
            await self._wait(limit_s)
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def interrupt(self, failure: NodeFailure) -> None:
        """The wait for bytes that runs, or the next one, raises the failure. The answer can be read further."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)
        else:
            self._interruption = failure

    def abort(self) -> None:
        """Drop the connection: the node sees that nobody waits."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(NodeFailure(Failure.RESET, "was not waited for"))

    def close(self) -> None:
        self._keeps_alive = False
        if self._transport is not None:
            self._transport.close()

    async def _wait(self, limit_s: float | None) -> None:
        if self._failure is not None:
            raise self._failure
        if self._interruption is not None:
            failure, self._interruption = self._interruption, None
            raise failure
        self._waiter = self._loop.create_future()
        timer = None if limit_s is None else self._loop.call_later(limit_s, self._too_slow, limit_s)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: NodeFailure) -> None:
        self._failure = self._failure or failure
        self._keeps_alive = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._failure)

    def _too_slow(self, limit_s: float) -> None:
        self._fail(NodeFailure(Failure.TIMEOUT, f"sent nothing for {limit_s:g} s"))
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._is_complete:  # nobody asked
            self._break("sent more than its answer")
            return
        self.was_answered = True
        limit = MAX_HEAD_BYTES if self._head is None else MAX_OVERHEAD_BYTES
        part = memoryview(data)
        # By steps, because what a body is made of does not count.
        for start in range(0, len(part), _STEP):
            step = part[start : start + _STEP]
            self._overhead += len(step)
            try:
                self._parser.feed_data(step)
            except httptools.HttpParserUpgrade:
                self._break("switched to another protocol")
            except httptools.HttpParserError as error:
                if self._failure is None:
                    self._break(f"sent something that is not HTTP/1.1 ({str(error)[:100]})")
            if self._overhead > limit:
                what = "a head" if self._head is None else "chunk extensions or trailers"
                self._break(f"sent {what} of more than {limit} bytes")
            if self._failure is not None:
                return

    def connection_lost(self, exc: Exception | None) -> None:
        was_idle = self._is_complete
        if not self._is_complete and self._head is not None and self._ends_with_connection and exc is None:
            self._is_complete = True
            self._wake()
        elif not self._is_complete:
            part = "within its answer" if self.was_answered else "without an answer"
            self._fail(NodeFailure(Failure.RESET, f"closed the connection {part}"))
        self._keeps_alive = False
        if was_idle and self.on_idle_lost is not None:
            self.on_idle_lost(self)

    def _break(self, message: str) -> None:
        self._fail(NodeFailure(Failure.PROTOCOL, message))
        self._transport.abort()

    # httptools

    def on_message_begin(self) -> None:
        if self._is_complete:
            self._break("sent more than its answer")
            raise ValueError("another answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._headers) >= MAX_HEADERS:
            self._break(f"sent more than {MAX_HEADERS} header fields")
            raise ValueError("too many header fields")
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status: int = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return
        if not 200 <= status <= 599:
            self._break(f"answered with status {status}")
            raise ValueError("status")
        self._head, self._overhead = AnswerHead(status, self._headers), 0
        framing = {name for name, _ in self._headers}
        has_body = status not in (204, 304)
        self._ends_with_connection = (
            has_body and b"content-length" not in framing and b"transfer-encoding" not in framing
        )
        self._keeps_alive = self._parser.should_keep_alive() and not self._ends_with_connection
        self._wake()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > HIGH_WATER and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._head is None:  # an interim answer; its bytes count as those of the head
            self._headers = []
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._break(f"sent more than {MAX_INTERIM} interim answers")
                raise ValueError("too many interim answers")
            return
        self._is_complete = True
        self._wake()
