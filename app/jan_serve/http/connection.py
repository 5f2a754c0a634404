"""One HTTP/1.1 connection: uvicorn's httptools protocol with bounds on what a client makes it hold and wait for."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jan_serve.http.disconnect import ConnectionHooks, attach_hooks
from jan_serve.http.replies import json_bytes
from jan_serve.http.request_parser import RequestParser

MAX_CONNECTIONS: Final = 1000


def connection_limit() -> int:
    """Half of the file descriptors that the process may open, at most: models, helpers and files need the others."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # not on Windows

    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_bounded = descriptors != resource.RLIM_INFINITY
    return min(MAX_CONNECTIONS, descriptors // 2) if is_bounded else MAX_CONNECTIONS


MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 1000
MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
TIMEOUT_S: Final = 30.0
PROBE_S: Final = 0.3
NEXT_REQUEST_S: Final = 1.0

_STEP: Final = 2048
"""Bytes that are parsed at once: the shortest requests in them are all that can queue up unseen."""
_STEPS: Final = 8
_PIECES: Final = 256
"""Steps, and chunks of a body, in one turn of the event loop: other connections wait meanwhile."""
_SLOWEST_BYTES_PER_S: Final = 1024
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_EMPTY_LINE_CHUNK: Final = b"1\r\n\n\r\n"


class _State(Enum):
    """What the connection is waiting for."""

    IDLE = auto()
    HEAD = auto()
    ANSWER = auto()
    UNREAD = auto()  # the rest of a body whose request was answered
    READER = auto()  # the client takes what was written


class _Flow(FlowControl):
    """Reads nothing while there is something left that was read."""

    def __init__(self, transport: asyncio.Transport, has_rest: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._has_rest = has_rest

    def resume_reading(self) -> None:
        """Called for each message that the application asks for, too."""
        if not self._has_rest():
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """A client has `timeout_s` for each of: the next request, a head, the rest of an unread body, taking its answer.

    The deadline belongs to the state and no byte renews it. There is no deadline while the application works: it
    limits the time of bodies and answers itself. `max_head_bytes` limits a head, and everything between two chunks of
    a body or after the last one (chunk extensions, trailers).

    A client that sends FIN may still read (it shut down its sending side) or be gone: TCP shows no difference until
    something is written. So the answer continues, and every `probe_s` the server writes bytes that readers skip: an
    interim response before the head of the answer (RFC 9110, section 15.2), an empty line between events after it. A
    client that is gone answers with RST, and the next write ends the connection.

    When the server ends, a connection closes after an answer that says so, or `next_request_s` after it was made or
    answered without that: its client cannot know of the end when it sends its next request.

    Above `max_connections`, a new connection closes the one that has waited for its client for the longest time. One
    whose request is being answered stays.
    """

    max_connections: int = connection_limit()
    timeout_s: float = TIMEOUT_S
    max_head_bytes: int = MAX_HEAD_BYTES
    probe_s: float = PROBE_S
    next_request_s: float = NEXT_REQUEST_S

    _waiting: ClassVar[dict[HttpConnection, None]] = {}
    """Connections with a deadline, the earliest first. Of the whole process, as file descriptors are."""

    _answering: Any = None  # the cycle whose application runs or ran last; `cycle` was parsed last
    _between_messages = True
    _head_begun = False
    _free_since = 0.0  # made, or the last answer complete
    _is_ending = False
    _half_closed = False
    _pieces = 0  # of bodies, in this turn
    _overhead = 0  # bytes since a head or a piece of a body was complete
    _unread = 0  # bytes of a body whose request was answered
    _unparsed = memoryview(b"")
    _parsing: asyncio.Handle | None = None
    _refusal: bytes | None = None
    _state: _State | None = None
    _buffered = 0
    _deadline: asyncio.TimerHandle | None = None
    _probing: asyncio.TimerHandle | None = None
    _end: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser: Any = RequestParser(self)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._free_since = self.loop.time()
        self.flow = _Flow(transport, self._has_rest)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio leaves it off where the listening socket was made without naming the protocol; head and body of an
            # answer are two writes, of which the second would wait 40 ms for a delayed acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self.max_connections and self._waiting:
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()
        self._watch()

    def shutdown(self) -> None:
        self._is_ending = True
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False
        self._end_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._deadline, self._probing, self._parsing, self._end):
            if handle is not None:
                handle.cancel()
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._state is _State.UNREAD:
            self._unread += len(data)
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        self._parse()
        if self._unread > MAX_UNREAD_BYTES and not self._between_messages:
            self.transport.close()
        self._watch()

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]: asyncio takes a bool, uvicorn says None
        """True keeps the sending side open: while an answer to a complete request is on its way."""
        if not self._is_answering() or self.cycle.more_body:
            self.transport.close()
            self._watch()
            return False
        self._half_closed = True
        self.cycle.keep_alive = False
        self._probing = self.loop.call_later(self.probe_s, self._probe)
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            self._refuse_head(f"The request has more than {MAX_HEADERS} header fields.")
            raise ValueError("too many header fields")  # ends the parser
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        scope: Any = self.scope
        attach_hooks(scope, ConnectionHooks(target=self.url, abort=self._abort))
        super().on_headers_complete()
        if self._is_ending:
            self.cycle.keep_alive = False
        self._between_messages = self._head_begun = False
        self._overhead = self._unread = 0
        self._watch()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        self._pieces += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._between_messages = True
        self._overhead = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._free_since = self.loop.time()
        if self._is_ending:
            self._end_soon()
        self._unset_keepalive_if_required()  # `_watch` has its own
        self._parse()
        is_last = self._refusal is not None or self._half_closed
        if is_last and not self.pipeline and not self._is_answering():
            self.transport.write(self._refusal or b"")
            self.transport.close()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for a request that llhttp rejects."""
        self._refuse(HTTPStatus.BAD_REQUEST, "bad_request", "The request is not valid HTTP/1.1.")

    def _end_soon(self) -> None:
        left_s = self._free_since + self.next_request_s - self.loop.time()
        # The second turn of the event loop comes after what has arrived meanwhile is read, however long this one takes.
        then = partial(self.loop.call_soon, self._end_now)
        self._end = self.loop.call_later(max(left_s, 0.0), self.loop.call_soon, then)

    def _end_now(self) -> None:
        if self._is_answering() or self.transport.is_closing():
            return
        if self._head_begun or self._overhead:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "draining", "The server is shutting down.")
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def _has_rest(self) -> bool:
        return bool(self._unparsed or self.pipeline)

    def _parse(self) -> None:
        """Parse what has come, a turn's work, up to a request that has to wait for the answer to another one."""
        self._pieces = 0
        for _ in range(_STEPS):
            if not self._unparsed or self.pipeline or self._pieces >= _PIECES:
                break
            if self._refusal is not None or self.transport.is_closing():
                self._unparsed = memoryview(b"")
                break
            room = self.max_head_bytes - self._overhead
            if room <= 0:
                self._refuse_head(f"The request head is longer than {self.max_head_bytes} bytes.")
                continue
            part = self._unparsed[: min(_STEP, room)]
            self._unparsed = self._unparsed[len(part) :]
            self._overhead += len(part)
            super().data_received(part)  # pyright: ignore[reportArgumentType]: the parser takes any buffer
        if self._unparsed:
            self.flow.pause_reading()
            if not self.pipeline and self._parsing is None:
                self._parsing = self.loop.call_soon(self._parse_on)

    def _parse_on(self) -> None:
        self._parsing = None
        self._parse()
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or len(cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline of the state that the connection has come to."""
        state = self._current_state()
        if state is self._state or self not in self.connections:
            return
        self._state = state
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if state is _State.READER:
            self._buffered = self.transport.get_write_buffer_size()
        if state is not _State.ANSWER:
            self._deadline = self.loop.call_later(self.timeout_s, self._too_slow)
            self._waiting[self] = None

    def _current_state(self) -> _State:
        answering = self._is_answering()
        # A stream has a limit of its own (`write_timeout_s`).
        is_stream = answering and self._answering.chunked_encoding
        if self.transport.is_closing() or (self.flow.write_paused and not is_stream):
            return _State.READER
        if answering:
            return _State.ANSWER
        if not self._between_messages:
            return _State.UNREAD
        if self._answering is None or self._head_begun or self._overhead:
            return _State.HEAD
        return _State.IDLE

    def _too_slow(self) -> None:
        state, self._state, self._deadline = self._state, None, None
        if state is _State.READER:
            left = self.transport.get_write_buffer_size()
            if left > self._buffered - self.timeout_s * _SLOWEST_BYTES_PER_S:
                self.transport.abort()
                return
        elif state is _State.HEAD and (self._head_begun or self._overhead):
            message = "The request head took too long to arrive."
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", message)
        else:
            self.transport.close()
        self._watch()

    def _probe(self) -> None:
        if self.transport.is_closing() or not self._is_answering():
            return
        cycle = self._answering
        if not self.flow.write_paused:
            if not cycle.response_started:
                if cycle.scope["http_version"] == "1.1":
                    self.transport.write(_CONTINUE)
            elif cycle.chunked_encoding:
                self.transport.write(_EMPTY_LINE_CHUNK)
        self._probing = self.loop.call_later(self.probe_s, self._probe)

    def _abort(self) -> None:
        self.transport.abort()
        cycle = self._answering
        if cycle is not None:
            # uvicorn learns it a turn later, and would report an answer that nobody completed.
            cycle.disconnected = True
            cycle.message_event.set()

    def _refuse_head(self, message: str) -> None:
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message)

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        """Send this error after earlier answers, then close. OpenAI's form: without a path there is no dialect."""
        if self._refusal is not None:
            return
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        body = json_bytes({"error": error})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self._refusal = head.encode() + body
        if not self._between_messages:  # the fault is in the body of the last request
            cycle: Any = self.cycle
            if cycle is not self._answering:
                self.pipeline.popleft()
            else:
                if cycle.response_started:
                    self._refusal = b""
                cycle.disconnected = True
                cycle.message_event.set()
        if not self._is_answering() or self._answering.disconnected:
            self.transport.write(self._refusal)
            self.transport.close()
