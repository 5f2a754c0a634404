"""Answers that move between servers: a proxy's request begins with an earlier server's events, and gets records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.core.transcript import (
    ASKED,
    RECORDED,
    Kind,
    Record,
    Transcript,
    current,
    read_asked,
    recorded_header,
)
from jan_serve.errors import InvalidState, is_temporary
from jan_serve.http.disconnect import abort_connection
from jan_serve.http.errors import Envelopes, HttpError, http_problem
from jan_serve.http.guards.guard import header_values
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import record_of

logger = logging.getLogger(__name__)

_KEY = "jan_serve.transcript"
"""Key of a scope for the transcript that a proxy asked for."""


class Transcripts:
    """Innermost of the middleware: the body that it reads has been judged by its length."""

    def __init__(self, app: ASGIApp, *, envelopes: Envelopes, lifecycle: Lifecycle) -> None:
        self._app = app
        self._envelopes = envelopes
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        values = header_values(scope, ASKED) if scope["type"] == "http" else []
        transcript: Transcript | None = None
        try:
            if values:
                transcript, receive = await _opened(values[0], receive, self._lifecycle)
        except HttpError as error:
            record = record_of(scope)
            record.error = error.problem.code
            response = self._envelopes.render(scope["path"], error.problem, record.request_id)
            await response(scope, receive, send)
            return
        current.set(transcript)
        scope[_KEY] = transcript
        await self._app(scope, receive, send)


async def _opened(value: bytes, receive: Receive, lifecycle: Lifecycle) -> tuple[Transcript, Receive]:
    """The transcript, and what receives the rest of the body. Raises HttpError."""
    name = ASKED.decode()
    try:
        asked = read_asked(value)
    except ValueError as error:
        raise _invalid(f"{name}: {error}") from None
    body, is_over = b"", False
    while len(body) < asked.log_bytes and not is_over:
        message = await receive()
        body += message.get("body", b"")
        is_over = not message.get("more_body", False)
    if len(body) < asked.log_bytes:
        raise _invalid(f"{name}: the body is shorter than the {asked.log_bytes} bytes that it names")
    try:
        transcript = Transcript(asked, body[: asked.log_bytes], lambda: lifecycle.draining)
    except InvalidState as error:
        raise _invalid(f"{name}: {error.message}") from None
    if not asked.log_bytes:
        return transcript, receive
    rest_of_it = body[asked.log_bytes :]
    first: Message | None = {"type": "http.request", "body": rest_of_it, "more_body": not is_over}

    async def rest() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        message, first = first, None
        return message

    return transcript, rest


def _invalid(message: str) -> HttpError:
    return http_problem(HTTPStatus.BAD_REQUEST, InvalidState.code, message)


def recording(scope: Scope, send: Send, ping: bytes, set_header: Callable[[str, str], None]) -> Send:
    """Sends each message of a stream's body as a record, if a proxy asked for a transcript.

    ping: the message that is no frame. A frame that the client cannot have, as another server counts them, ends the
    connection: the streams of the two differ.
    """
    transcript: Transcript | None = scope.get(_KEY)
    if transcript is None or not transcript.can_move:
        return send
    set_header(RECORDED.decode(), recorded_header(transcript.weights, ping))
    return _Recording(scope, send, ping, transcript)


class _Recording:
    """Sends an answer as records; see `recording`."""

    def __init__(self, scope: Scope, send: Send, ping: bytes, transcript: Transcript) -> None:
        self._scope = scope
        self._send = send
        self._ping = ping
        self._transcript = transcript
        self._to_skip = transcript.asked.shown
        self._adds = False
        """Whether the client has got something of this server."""
        self._differs = self._is_stuck = self._has_left = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            if self._differs and message["more_body"]:
                return
            kind = self._kind(message["body"])
            is_end = not message["more_body"] and record_of(self._scope).error is None
            if self._to_skip and (kind is Kind.FRAME or is_end):
                self._skip(message)
                if message["more_body"]:
                    return
            self._adds = self._adds or kind is Kind.FRAME
            message = {**message, "body": self._records(kind, message["body"])}
        await self._send(message)

    def _kind(self, body: bytes) -> Kind:
        if not body or body == self._ping:
            return Kind.PING
        error = record_of(self._scope).error
        if error is None:
            return Kind.FRAME
        is_useless = bool(self._transcript.asked.weights) and not self._adds
        return Kind.FAILURE if is_useless or is_temporary(error) else Kind.FRAME

    def _skip(self, message: Message) -> None:
        self._to_skip -= 1
        if self._transcript.has_new or not message["more_body"]:
            self._differs = True
            logger.warning("a stream that another server began has other frames here")
            abort_connection(self._scope)

    def _records(self, kind: Kind, body: bytes) -> bytes:
        """No record for the empty message at the end."""
        if not self._transcript.can_move:
            self._transcript.take()
            stuck = b"" if self._is_stuck else Record(Kind.STUCK, b"", b"").encoded()
            self._is_stuck = True
            return stuck + (Record(kind, b"", body).encoded() if body else b"")
        leaves = b""
        if self._transcript.is_leaving() and not self._has_left:
            self._has_left = True
            leaves = Record(Kind.LEAVES, b"", b"").encoded()
        return (Record(kind, self._transcript.take(), body).encoded() if body else b"") + leaves
