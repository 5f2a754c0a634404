"""Event streams (WHATWG HTML, section 9.2): framing, keep-alive comments, errors in band, clients that leave or stall.

`data: ` and one line of JSON, LF line ends, no other field unless a protocol names its events. A failed answer ends
with an error event; the success mark (`[DONE]`) follows success only.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from itertools import chain
from typing import Any, Final, TypeVar

import anyio
import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from jan_serve.core.closing import closing
from jan_serve.errors import JanServeError
from jan_serve.http.disconnect import abort_connection
from jan_serve.http.errors import Problem, logged_problem, unexpected_problem
from jan_serve.http.replies import frame
from jan_serve.http.request_record import RequestRecord
from jan_serve.http.transcripts import recording

logger = logging.getLogger(__name__)

T = TypeVar("T")

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"


class StreamSettings(msgspec.Struct, frozen=True):
    """ping_s: between keep-alive comments (`ping`), 0 for none. write_timeout_s: for a reader that takes nothing."""

    ping_s: float
    write_timeout_s: float
    ping: bytes = PING
    media_type: str = "text/event-stream"


class _Comment(ServerSentEvent):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def encode(self) -> bytes:
        return self._data


class EventStream(EventSourceResponse):
    """Closes the generator of frames when the client leaves.

    A drain does not end the stream; the generator does, with an error event.
    """

    def __init__(self, frames: AsyncIterator[bytes], streams: StreamSettings) -> None:
        self._comment = streams.ping if streams.ping_s else b""
        comment = _Comment(streams.ping)
        super().__init__(  # pyright: ignore[reportUnknownMemberType]: its annotations have a bare `dict`
            frames,
            media_type=streams.media_type,
            ping=streams.ping_s,
            sep="\n",
            ping_message_factory=lambda: comment,
            send_timeout=streams.write_timeout_s,
        )
        # The server sets it: the base class writes keep-alive even if the connection closes.
        del self.headers["connection"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = recording(scope, send, self._comment, self.headers.__setitem__)
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            logger.info("dropped a client that stopped reading its stream")
            abort_connection(scope)

    @staticmethod
    async def _listen_for_exit_signal() -> None:
        # The base class would end every stream at the first signal.
        await anyio.sleep_forever()


async def frames_of(
    events: AsyncIterator[T],
    render: Callable[[T], Iterable[object]],
    render_error: Callable[[Problem], object],
    *,
    record: RequestRecord,
    first: Iterable[T] = (),
    done: bytes = DONE,
    done_after_error: bool = False,
    framed: Callable[[Any], bytes] = frame,
) -> AsyncGenerator[bytes]:
    """Frames of rendered events, then `done`; after a failure, one error event.

    first: events that were awaited before the headers. done_after_error: for protocols whose mark only ends the
    stream. Always closes `events`.
    """
    finished = False
    try:
        async with closing(events):
            marked = bool(done)
            try:
                for value in chain.from_iterable(map(render, first)):
                    yield framed(value)
                async for event in events:
                    for value in render(event):
                        yield framed(value)
            except Exception as error:
                marked = done_after_error
                if isinstance(error, JanServeError):
                    problem = logged_problem(error, record.request_id)
                else:
                    logger.exception("request %s failed while streaming", record.request_id)
                    problem = unexpected_problem(error)
                record.error = problem.code
                yield framed(render_error(problem))
            if marked:
                yield done
        finished = True
    finally:
        if not finished:
            record.client_left()


STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/event-stream": {}}}}
"""The `responses` of a route whose answer may be a stream, for its OpenAPI document."""
