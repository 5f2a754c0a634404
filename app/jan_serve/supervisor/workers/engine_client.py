"""The client of one ready worker.

Routes events by request id. The end of the worker fails each open request once, with the reason; HeldModel may then
send it to the next worker.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

import msgspec

from jan_serve.core.caller import client, in_background
from jan_serve.core.models import ModelFacts
from jan_serve.errors import (
    EngineCrashed,
    EngineFailure,
    EngineStalled,
    GrammarTooComplex,
    InvalidRequest,
    JanServeError,
    ProtocolError,
    copy_error,
    error_from_payload,
)
from jan_serve.ipc.attachments import media_frames
from jan_serve.ipc.messages import (
    AbortRequest,
    ContextGrown,
    Counted,
    Detokenized,
    DropState,
    Embedded,
    EngineEvent,
    EngineRequest,
    Failed,
    ReadState,
    RequestCompleted,
    StateKept,
    StatePart,
    StateStored,
    Step,
    StoreState,
    Tokenized,
    WorkerEvent,
    WorkerRequest,
)
from jan_serve.ipc.scoring import OptionsWeighed, Query, answer_type
from jan_serve.supervisor.workers.event_queue import EventQueue
from jan_serve.supervisor.workers.watchdog import Stall
from jan_serve.supervisor.workers.worker_process import WorkerEnd, WorkerProcess

A = TypeVar("A")

FIRST_ID: Final = 1
SEND_AGAIN: Final = " Send the request again."


class _Open(msgspec.Struct):
    """An open request. since: its start; None once the worker has sent its end and only the reader is late, and for
    parts of states, which do not involve the engine thread."""

    since: float | None
    fail: Callable[[JanServeError], None]
    inbox: EventQueue | None = None
    answer: asyncio.Future[Any] | None = None
    tokenized: Tokenized | None = None
    has_grammar: bool = False


class WorkerEngineClient:
    """Requests of one worker, and their answers. Event loop only."""

    _ids = itertools.count(FIRST_ID)

    def __init__(
        self, name: str, facts: ModelFacts, worker: WorkerProcess, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.facts = facts
        self._worker = worker
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._failures: list[JanServeError] = []

    @property
    def failure(self) -> JanServeError | None:
        """Why it takes no more requests; None while it does."""
        return self._failures[0] if self._failures else None

    @property
    def open_requests(self) -> int:
        """Requests whose reader has not left."""
        return len(self._open)

    def next_id(self) -> int:
        return next(self._ids)

    @asynccontextmanager
    async def opened(self, request: EngineRequest) -> AsyncGenerator[EventQueue]:
        """Send a request; the block reads its events up to RequestCompleted. Its end aborts the request. Reading
        raises the error of the worker's Failed, and EngineFailure if the worker ends. Raises InvalidRequest if the
        request is too large for the pipe."""
        inbox = EventQueue()
        entry = _Open(self._clock(), inbox.fail, inbox, has_grammar=request.guide is not None)
        self._register(request.id, entry)
        try:
            sent = msgspec.structs.replace(request, client=client.get(), background=in_background.get())
            for frame in media_frames(sent):
                await self._send(frame)
            yield inbox
        finally:
            self._close(request.id)

    async def ask(self, request: Query[A]) -> A:
        """The answer. Cancelling the call aborts the request. Raises as `opened`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def fail(error: JanServeError) -> None:
            if not answer.done():
                answer.set_exception(error)

        request = msgspec.structs.replace(
            request, id=request.id or self.next_id(), client=client.get(), background=in_background.get()
        )
        since = None if isinstance(request, ReadState | StoreState) else self._clock()
        self._register(request.id, _Open(since, fail, answer=answer))
        try:
            await self._send(cast(WorkerRequest, request))
            event = await answer
        finally:
            self._close(request.id)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # retrieved, even if a cancellation came first
        if not isinstance(event, answer_type(type(request))):
            raise EngineFailure(f"The engine answered {type(request).__name__} with {type(event).__name__}.")
        return event

    def drop_state(self, state: int) -> None:
        self._worker.send_nowait(DropState(state))

    def fail_all(self, error: JanServeError) -> None:
        """Fail every open request with `error` and abort it in the worker; later requests fail with it at once."""
        self._failures.append(error)
        for request_id, entry in self._open.items():
            entry.fail(copy_error(error))
            if entry.since is not None:
                entry.since = None
                self._worker.send_nowait(AbortRequest(request_id))

    # As a WorkerListener.

    def on_event(self, event: WorkerEvent) -> None:
        match event:
            case Step():
                for part in event.events:
                    self._deliver(part)
            case Failed():
                self._deliver(event)
            case Embedded() | OptionsWeighed() | Counted() | Detokenized() | StatePart() | StateStored():
                self._answer(event)
            case Tokenized():
                self._answer_in_parts(event)
            case ContextGrown():
                self.facts = msgspec.structs.replace(self.facts, n_ctx=event.n_ctx, kv_bytes=event.kv_bytes)
            case _:
                raise ProtocolError(f"a ready worker sent {type(event).__name__}")

    def _answer(self, event: Any) -> None:
        entry = self._open.get(event.id)
        if entry is not None and entry.answer is not None and not entry.answer.done():
            entry.since = None
            entry.answer.set_result(event)

    def _answer_in_parts(self, part: Tokenized) -> None:
        entry = self._open.get(part.id)
        if entry is None:
            return
        if entry.tokenized is None:
            entry.tokenized = part
        else:
            entry.tokenized.tokens.extend(part.tokens)
            entry.tokenized.pieces.extend(part.pieces)
        if part.is_last:
            self._answer(entry.tokenized)

    def oldest_request_s(self) -> float | None:
        since = [entry.since for entry in self._open.values() if entry.since is not None]
        return self._clock() - min(since) if since else None

    def on_end(self, end: WorkerEnd) -> None:
        crashed = EngineCrashed(
            f"The engine of the model `{self.name}` ended before the answer was complete ({end}).{SEND_AGAIN}"
        )
        self._failures.append(crashed)
        for request_id, entry in self._open.items():
            entry.since = None
            entry.fail(
                copy_error(crashed) if end.stall is None else self._stalled(end.stall, request_id, entry)
            )

    def _stalled(self, stall: Stall, request_id: int, entry: _Open) -> JanServeError:
        if stall.request_id == request_id and entry.has_grammar:
            return GrammarTooComplex(
                f"The grammar took more than {stall.seconds:.1f} s for one token; the engine was ended."
                " Use bounded repeats and fewer nested optional parts."
            )
        return EngineStalled(
            f"The engine of the model `{self.name}` made no progress and was ended"
            f" ({stall.phase}, {stall.seconds:.1f} s).{SEND_AGAIN}"
        )

    def _register(self, request_id: int, entry: _Open) -> None:
        if self.failure is not None:
            raise copy_error(self.failure)
        if request_id in self._open:
            raise ProtocolError(f"request id {request_id} is in use")
        self._open[request_id] = entry

    def _close(self, request_id: int) -> None:
        """Remove a request; abort it unless the worker has ended it. Never waits: safe under cancellation."""
        entry = self._open.pop(request_id)
        if entry.since is not None:
            self._worker.send_nowait(AbortRequest(request_id))

    async def _send(self, request: WorkerRequest) -> None:
        try:
            await self._worker.send(request)
        except ProtocolError as error:
            raise InvalidRequest(f"The request cannot be given to the engine: {error.message}.") from error
        except ConnectionError:
            # The worker is ending: on_end() fails every open request, and this one is open.
            return

    def _deliver(self, event: EngineEvent) -> None:
        entry = self._open.get(event.id)
        if entry is None:  # aborted while the event was on its way
            if isinstance(event, StateKept):
                self.drop_state(event.id)
            return
        if isinstance(event, Failed | RequestCompleted):
            entry.since = None
        if isinstance(event, Failed):
            entry.fail(error_from_payload(event.code, event.payload))
        elif entry.inbox is not None:
            entry.inbox.put(event)
