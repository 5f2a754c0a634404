"""Sizes and times of one HTTP request, never its text, and the outermost middleware, which makes them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.core.caller import stop_loops
from jan_serve.core.events import (
    Completed,
    EngineWork,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from jan_serve.core.trace import PhaseSpan, RequestTrace, begin_trace
from jan_serve.http.disconnect import abort_connection
from jan_serve.http.errors import (
    CLIENT_CLOSED,
    Envelopes,
    Problem,
    ending_problem,
    form_path,
    unexpected_problem,
)
from jan_serve.http.lifecycle import Lifecycle

_KEY = "jan_serve.record"


class RequestRecord(msgspec.Struct):
    """Times are in seconds; `first_token_s` counts from the arrival of the request.

    token_gaps_s: between consecutive pieces of an answer, over all choices. finish_reasons: one per choice.
    ignored: warnings of fields of the body. thinking: the last piece was of a thought. finished_s: when the last token
    was there. written: done once an answer in the background is, which needs no client.
    """

    request_id: str
    started: float = msgspec.field(default_factory=time.perf_counter)
    model: str | None = None
    stream: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    first_token_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    token_gaps_s: list[float] = msgspec.field(default_factory=list[float])
    finish_reasons: list[str] = msgspec.field(default_factory=list[str])
    error: str | None = None
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    cancelled: bool = False
    trace: RequestTrace = msgspec.field(default_factory=RequestTrace)
    work: EngineWork = msgspec.field(default_factory=EngineWork)
    thinking: bool = False
    finished_s: float | None = None
    written: asyncio.Future[None] | None = None
    _last_token_s: float = 0.0

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.started

    @property
    def pieces(self) -> int:
        """Number of pieces of the answer so far, over all choices."""
        return 0 if self.first_token_s is None else len(self.token_gaps_s) + 1

    def client_left(self) -> None:
        self.cancelled = self.cancelled or self.written is None

    def phases(self, total_s: float) -> Iterator[PhaseSpan]:
        """Begun by `total_s` after its arrival. `reading` has the wait too, until the engine tells its length."""
        yield from self.trace.spans()
        if self.finished_s is not None:
            queue, reading, writing = self.queue_s or 0.0, self.prefill_s or 0.0, self.decode_s or 0.0
            end = self.started + self.finished_s
            yield PhaseSpan("queue", end - writing - reading - queue, queue)
            yield PhaseSpan("reading", end - writing - reading, reading)
            yield PhaseSpan("writing", end - writing, writing)
        elif self.prompt_tokens:
            began = self.started + self.trace.before_s
            first_s = total_s if self.first_token_s is None else self.first_token_s
            yield PhaseSpan("reading", began, max(0.0, self.started + first_s - began))
            if self.first_token_s is not None:
                yield PhaseSpan("writing", self.started + first_s, total_s - first_s)

    def observe(self, event: GenerationEvent) -> None:
        """Counts are current after each event, because an answer may be cut short."""
        match event:
            case Started():
                self.model = event.model
                self.prompt_tokens += event.prompt_tokens
                self.warnings = event.warnings
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                self.thinking, at_s = isinstance(event, ReasoningDelta), self.elapsed_s()
                if self.first_token_s is None:
                    self.first_token_s = at_s
                else:
                    self.token_gaps_s.append(at_s - self._last_token_s)
                self._last_token_s = at_s
            case Finished():
                self.completion_tokens += event.completion_tokens
                self.finish_reasons.append(event.reason)
            case Completed():
                self.count(event.usage)
                self.queue_s = event.timings.queue_s
                self.prefill_s = event.timings.prefill_s
                self.decode_s = event.timings.decode_s
                self.work = event.work
                self.finished_s = self.elapsed_s()
            case _:
                pass

    def count(self, usage: Usage) -> None:
        """Replace the counts by the final ones."""
        self.prompt_tokens = usage.prompt_tokens
        self.completion_tokens = usage.completion_tokens
        self.cached_tokens = usage.cached_tokens
        if self.trace.parts is not None:
            self.trace.parts.tokens = usage.prompt_tokens


def attach_record(scope: Scope, record: RequestRecord) -> None:
    scope[_KEY] = record


def record_of(scope: Scope) -> RequestRecord:
    record = scope[_KEY]
    assert isinstance(record, RequestRecord)
    return record


logger = logging.getLogger("jan_serve.request")

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
WARNING_HEADER: Final = "x-jan-serve-warning"
"""Names a part of the request that is enforced only partly. May occur several times."""

STOP_LOOPS: Final = b"x-jan-serve-stop-loops"
"""Header in place of the setting `stop_loops`, for clients that can send no field."""

_UNMATCHED: Final = "unmatched"
_MAX_PATH_CHARS: Final = 80
_MAX_WARNINGS: Final = 16
"""Further ones are not sent: clients and proxies limit the size of a head."""

_PROBE_PATHS: Final = frozenset({"/health", "/ready", "/metrics", "/logs", "/models/sse"})
"""They only watch the server, and cause no work: they get no log line, and a drain does not wait for them."""


class RequestWatcher(Protocol):
    """Sees each request begin, and end with its answer, also in the background; status 499 if the client left."""

    def begin(self, scope: Scope, record: RequestRecord) -> None:
        """Does nothing: some watchers see only the end."""

    def end(self, route: str, status: int, record: RequestRecord) -> None: ...


class RequestContext:
    def __init__(
        self,
        app: ASGIApp,
        *,
        envelopes: Envelopes,
        lifecycle: Lifecycle,
        probe_paths: Iterable[str] = (),
        rewrites: Iterable[Callable[[Scope], None]] = (),
        watchers: Sequence[RequestWatcher] = (),
    ) -> None:
        """probe_paths: besides the server's own. rewrites: of dialects, see Dialect.rewrite_scope."""
        self._app = app
        self._envelopes = envelopes
        self._lifecycle = lifecycle
        self._probe_paths = _PROBE_PATHS | frozenset(probe_paths)
        self._rewrites = tuple(rewrites)
        self._watchers = tuple(watchers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for rewrite in self._rewrites:
            rewrite(scope)
        stop_loops.set(_header(scope, STOP_LOOPS))
        record = RequestRecord(request_id=_request_id(scope), trace=begin_trace())
        for watcher in self._watchers:
            watcher.begin(scope, record)
        attach_record(scope, record)
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = record.request_id
                headers["openai-processing-ms"] = str(round(record.elapsed_s() * 1000))
                for warning in list(dict.fromkeys((*record.ignored, *record.warnings)))[:_MAX_WARNINGS]:
                    headers.append(WARNING_HEADER, _header_text(warning))
            await send(message)

        probe = scope["path"] in self._probe_paths
        # The end of the server waits for those that it took, not for those that it refuses meanwhile.
        with self._lifecycle.request(counted=not probe and not self._lifecycle.draining):
            try:
                await self._app(scope, receive, send_with_headers)
            except (Exception, asyncio.CancelledError) as error:
                problem = self._problem(error, record)
                record.error = problem.code
                if status:
                    abort_connection(scope)
                else:
                    response = self._envelopes.render(form_path(scope), problem, record.request_id)
                    await response(scope, receive, send_with_headers)
            finally:
                if status in (0, CLIENT_CLOSED):
                    record.client_left()
                end = partial(self._end, route_of(scope), status or CLIENT_CLOSED, record)
                if record.written is None or record.written.done():
                    end()
                else:
                    record.written.add_done_callback(lambda _: end())
                if not probe:
                    _log(scope, status, record)

    def _problem(self, error: BaseException, record: RequestRecord) -> Problem:
        """Raises the error if the request is not to be answered."""
        if isinstance(error, Exception):
            logger.error("request %s failed", record.request_id, exc_info=error)
            return unexpected_problem(error)
        task = asyncio.current_task()
        if not self._lifecycle.is_over or task is None:
            raise error
        task.uncancel()
        return ending_problem()

    def _end(self, route: str, status: int, record: RequestRecord) -> None:
        for watcher in self._watchers:
            watcher.end(route, status, record)


def _header_text(text: str) -> str:
    """Printable ASCII, on one line, of bounded length."""
    return _CONTROLS.sub(" ", text.encode("ascii", "backslashreplace").decode("ascii"))[:500]


def _request_id(scope: Scope) -> str:
    """The client's id if it is safe to log, else a new one."""
    text = _header(scope, b"x-request-id")
    return text if _REQUEST_ID.match(text) else f"req_{uuid.uuid4().hex}"


def _header(scope: Scope, wanted: bytes) -> str:
    """The first value; empty if there is none."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")


def route_of(scope: Scope) -> str:
    """The route's pattern, not the path: clients must not be able to create labels."""
    return getattr(scope.get("route"), "path", _UNMATCHED)


def _shown_route(scope: Scope) -> str:
    """The pattern; without one, the path too, which tells what a client misses. Printable ASCII, cut."""
    route = route_of(scope)
    path = "" if route != _UNMATCHED else " " + quote(scope["path"], errors="replace")[:_MAX_PATH_CHARS]
    return route + path


def _log(scope: Scope, status: int, record: RequestRecord) -> None:
    logger.info(
        "%s %s %s",
        scope["method"],
        _shown_route(scope),
        status or CLIENT_CLOSED,
        extra={
            "request_id": record.request_id,
            "model": record.model,
            "prompt_tokens": record.prompt_tokens or None,
            "cached_tokens": record.cached_tokens or None,
            "completion_tokens": record.completion_tokens or None,
            "first_token_s": record.first_token_s,
            "total_s": record.elapsed_s(),
            "error": record.error,
            "cancelled": record.cancelled or None,
        },
    )
