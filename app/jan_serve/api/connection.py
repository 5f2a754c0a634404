"""One HTTP/1.1 connection: uvicorn's httptools protocol with bounds on the request head, and hooks for the application.

llhttp refuses ambiguous framing itself (RFC 9112, section 11.2) but reads a head of any size at any pace.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jan_serve.api.connection_hooks import ConnectionHooks, attach_hooks

MAX_HEAD_BYTES: Final = 64 * 1024
HEAD_TIMEOUT_S: Final = 30.0


class Connection(HttpToolsProtocol):
    """Answers 431 to a head that is too large and 408 to one that takes too long, and closes."""

    head_timeout_s: float = HEAD_TIMEOUT_S
    max_head_bytes: int = MAX_HEAD_BYTES

    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_head_bytes and b"\r\n\r\n" not in data[: self._room(data)]:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request head is too large.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_too_slow)
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head = False
        self._head_bytes = 0
        attach_hooks(self.scope, ConnectionHooks(target=self.url, abort=self._abort))  # pyright: ignore[reportArgumentType]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        # The next request of a kept connection starts a head of its own.
        self._in_head = True
        super().on_message_complete()

    def _room(self, data: bytes) -> int:
        """How much of this piece may still belong to the head."""
        return max(0, self.max_head_bytes - (self._head_bytes - len(data)))

    def _abort(self) -> None:
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_too_slow(self) -> None:
        self._head_timer = None
        if self._head_bytes:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request head took too long to arrive.")
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._stop_timer()
        body = message.encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
