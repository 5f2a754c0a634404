"""One HTTP/1.1 connection: uvicorn's httptools protocol with bounds on the request head, half-closed clients and hooks.

llhttp refuses ambiguous framing itself (RFC 9112, section 11.2) but reads a head of any size at any pace.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jan_serve.api.http.connection_hooks import ConnectionHooks, attach_hooks
from jan_serve.api.http.replies import json_bytes
from jan_serve.api.http.request_parser import RequestParser

MAX_HEAD_BYTES: Final = 64 * 1024
HEAD_TIMEOUT_S: Final = 30.0
PROBE_S: Final = 0.3

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_EMPTY_LINE_CHUNK: Final = b"1\r\n\n\r\n"


class HttpConnection(HttpToolsProtocol):
    """Answers 431 to a head that is too large and 408 to one that takes too long, and closes.

    A client that sends FIN may still read (it shut down its sending side) or be gone: TCP shows no difference until
    something is written. So the answer goes on, and every `probe_s` something is written that readers skip: an interim
    response before the head of the answer (RFC 9110, section 15.2), an empty line between events after it. A client
    that is gone answers with RST, and the next write ends the connection.
    """

    head_timeout_s: float = HEAD_TIMEOUT_S
    max_head_bytes: int = MAX_HEAD_BYTES
    probe_s: float = PROBE_S

    _head_bytes = 0
    _in_head = True
    _half_closed = False
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser: Any = RequestParser(self)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio leaves it off where the listening socket was made without naming the protocol; head and body of an
            # answer are two writes, of which the second would wait 40 ms for a delayed acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start_timer(self.head_timeout_s, self._head_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            room = max(0, self.max_head_bytes - self._head_bytes)
            self._head_bytes += len(data)
            if self._head_bytes > self.max_head_bytes and b"\r\n\r\n" not in data[:room]:
                self._refuse(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    "headers_too_large",
                    f"The request head is longer than {self.max_head_bytes} bytes.",
                )
                return
        super().data_received(data)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]: asyncio takes a bool, uvicorn says None
        """True keeps the sending side open: while an answer to a complete request is on its way."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        self._half_closed = True
        cycle.keep_alive = False
        self._start_timer(self.probe_s, self._probe)
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._start_timer(self.head_timeout_s, self._head_too_slow)
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head = False
        self._head_bytes = 0
        scope: Any = self.scope
        attach_hooks(scope, ConnectionHooks(target=self.url, abort=self._abort))
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        # The next request of a kept connection starts a head of its own.
        self._in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed and not self.pipeline:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls for a request that llhttp refuses."""
        self._refuse(HTTPStatus.BAD_REQUEST, "bad_request", "The request is not valid HTTP/1.1.")

    def _probe(self) -> None:
        self._timer = None
        cycle: Any = self.cycle
        if self.transport.is_closing() or cycle.response_complete:
            return
        if not self.flow.write_paused:
            if not cycle.response_started:
                if cycle.scope["http_version"] == "1.1":
                    self.transport.write(_CONTINUE)
            elif cycle.chunked_encoding:
                self.transport.write(_EMPTY_LINE_CHUNK)
        self._start_timer(self.probe_s, self._probe)

    def _abort(self) -> None:
        self.transport.abort()

    def _start_timer(self, delay_s: float, callback: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(delay_s, callback)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_too_slow(self) -> None:
        self._timer = None
        if self._head_bytes:
            self._refuse(
                HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "The request head took too long to arrive."
            )
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        """Before there is a path, no dialect can be chosen: OpenAI's form, which most clients read."""
        self._stop_timer()
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = json_bytes({"error": error})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
