"""Requests to one ready worker, and its answers: `generation.ports.EngineClient` over a WorkerProcess.

Routes events by request id. Knows no model loading and no HTTP. Whatever ends the worker ends each open request once,
with an error that says why.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final, Protocol, TypeVar

import msgspec

from jan_serve.core.model_facts import ModelFacts
from jan_serve.errors import (
    EngineCrashed,
    EngineFailure,
    EngineStalled,
    GrammarTooComplex,
    InvalidRequest,
    JanServeError,
    ProtocolError,
    error_from_payload,
)
from jan_serve.ipc.messages import (
    AbortRequest,
    Detokenized,
    DetokenizeRequest,
    DropState,
    Embedded,
    EmbedRequest,
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
    TokenizeRequest,
    WorkerEvent,
    WorkerRequest,
)
from jan_serve.supervisor.models.fresh_error import fresh
from jan_serve.supervisor.workers.event_queue import EventQueue
from jan_serve.supervisor.workers.worker_process import WorkerEnd

_Call = EmbedRequest | TokenizeRequest | DetokenizeRequest | ReadState | StoreState
_Answer = Embedded | Tokenized | Detokenized | StatePart | StateStored
_A = TypeVar("_A", Embedded, Tokenized, Detokenized, StatePart, StateStored)

FIRST_ID: Final = 1


class RequestPipe(Protocol):
    """The sending half of a WorkerProcess."""

    async def send(self, request: WorkerRequest) -> None:
        """Send, waiting while the pipe is full. Raises ConnectionError when the worker is gone."""
        ...

    def send_nowait(self, request: WorkerRequest) -> None:
        """Send a small request without waiting; dropped when the worker is gone."""
        ...


class _Open(msgspec.Struct):
    """A request that has not ended.

    since: None once the worker has sent its end, and only the reader is behind; and for parts of states, which the
    engine thread has nothing to do with.
    """

    since: float | None
    fail: Callable[[JanServeError], None]
    inbox: EventQueue | None = None
    answer: asyncio.Future[_Answer] | None = None
    has_grammar: bool = False


class WorkerEngineClient:
    """One loaded model."""

    def __init__(
        self, name: str, facts: ModelFacts, pipe: RequestPipe, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._facts = facts
        self._pipe = pipe
        self._clock = clock
        self._ids = itertools.count(FIRST_ID)
        self._open: dict[int, _Open] = {}
        self._failures: list[JanServeError] = []
        self._adapter: str | None = None

    @property
    def name(self) -> str:
        """The model's canonical name."""
        return self._name

    @property
    def facts(self) -> ModelFacts:
        """What the worker said when it was ready."""
        return self._facts

    @property
    def adapter(self) -> str | None:
        """The LoRA adapter that the model was asked for with, by its name."""
        return self._adapter

    def adapted(self, adapter: str) -> WorkerEngineClient:
        """The same client, whose requests and end are those of this one, for a caller that asked for an adapter."""
        view = copy.copy(self)
        view._adapter = adapter
        return view

    @property
    def open_requests(self) -> int:
        """Requests whose reader has not left yet."""
        return len(self._open)

    def next_id(self) -> int:
        """A request id that this worker has not seen."""
        return next(self._ids)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        """Yield the request's events up to RequestCompleted. Closing the iterator aborts the request.

        Raises what the worker's Failed carries; EngineFailure when the worker ends under it; InvalidRequest when the
        request is too large for the pipe.
        """
        inbox = EventQueue()
        self._register(
            request.id,
            _Open(
                since=self._clock(),
                fail=inbox.fail,
                inbox=inbox,
                has_grammar=request.grammar is not None or request.guide is not None,
            ),
        )
        try:
            await self._send(request)
            while True:
                event = await inbox.get()
                if isinstance(event, Failed):
                    raise error_from_payload(event.code, event.payload)
                yield event
                if isinstance(event, RequestCompleted):
                    return
        finally:
            self._close(request.id)

    async def embed(self, request: EmbedRequest) -> Embedded:
        """Embed; cancelling the call aborts it. Raises as `generate` does."""
        return await self._call(request, Embedded)

    async def tokenize(self, request: TokenizeRequest) -> Tokenized:
        """Text to token ids. Raises as `generate` does."""
        return await self._call(request, Tokenized)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """Token ids to text. Raises as `generate` does."""
        return (await self._call(request, Detokenized)).text

    async def read_state(self, request: ReadState) -> StatePart:
        """A part of the state of a sequence that the worker keeps. Raises as `generate` does."""
        return await self._call(request, StatePart)

    async def store_state(self, request: StoreState) -> StateStored:
        """Give the worker a part of a state. Raises as `generate` does."""
        return await self._call(request, StateStored)

    def drop_state(self, state: int) -> None:
        """Have the worker forget a state. Never waits."""
        self._pipe.send_nowait(DropState(state))

    def fail_all(self, error: JanServeError) -> None:
        """End every open request with `error` and abort it in the worker; later ones end with it at once."""
        self._failures.append(error)
        for request_id, entry in self._open.items():
            entry.fail(fresh(error))
            if entry.since is not None:
                entry.since = None
                self._pipe.send_nowait(AbortRequest(request_id))

    def on_event(self, event: WorkerEvent) -> None:
        """WorkerListener: hand an answer, or each event of a step, to its request."""
        match event:
            case Step():
                for part in event.events:
                    self._deliver(part)
            case Failed():
                self._deliver(event)
            case Embedded() | Tokenized() | Detokenized() | StatePart() | StateStored():
                entry = self._open.get(event.id)
                if entry is not None and entry.answer is not None and not entry.answer.done():
                    entry.since = None
                    entry.answer.set_result(event)
            case _:
                raise ProtocolError(f"a ready worker sent {type(event).__name__}")

    def oldest_request_s(self) -> float | None:
        """WorkerListener: for how long the oldest request has been without its end; None while there is none."""
        since = [entry.since for entry in self._open.values() if entry.since is not None]
        return self._clock() - min(since) if since else None

    def on_end(self, end: WorkerEnd) -> None:
        """WorkerListener: the worker is gone; so is every request that has not ended."""
        self._failures.append(self._lost(end, None))
        for request_id, entry in self._open.items():
            entry.since = None
            blamed = end.stall is not None and end.stall.request_id == request_id and entry.has_grammar
            entry.fail(_too_complex(end) if blamed else self._lost(end, request_id))

    def _lost(self, end: WorkerEnd, request_id: int | None) -> EngineFailure:
        if end.stall is not None and request_id is not None:
            return EngineStalled(
                f"The engine of the model `{self._name}` made no progress and was ended"
                f" ({end.stall.phase}, {end.stall.seconds:.1f} s). Send the request again."
            )
        return EngineCrashed(
            f"The engine of the model `{self._name}` ended before the answer was complete ({end})."
            " Send the request again."
        )

    def _register(self, request_id: int, entry: _Open) -> None:
        if self._failures:
            raise fresh(self._failures[0])
        if request_id in self._open:
            raise ProtocolError(f"request id {request_id} is in use")
        self._open[request_id] = entry

    def _close(self, request_id: int) -> None:
        """Forget a request; abort it unless the worker has ended it. Never waits: safe under cancellation."""
        entry = self._open.pop(request_id)
        if entry.since is not None:
            self._pipe.send_nowait(AbortRequest(request_id))

    async def _call(self, request: _Call, kind: type[_A]) -> _A:
        """Send a request that has one answer, and wait for it."""
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()

        def fail(error: JanServeError) -> None:
            if not answer.done():
                answer.set_exception(error)

        since = None if isinstance(request, ReadState | StoreState) else self._clock()
        self._register(request.id, _Open(since=since, fail=fail, answer=answer))
        try:
            await self._send(request)
            event = await answer
        finally:
            self._close(request.id)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # seen, even where a cancellation came first
        if not isinstance(event, kind):
            raise EngineFailure(f"The engine answered {type(request).__name__} with {type(event).__name__}.")
        return event

    async def _send(self, request: WorkerRequest) -> None:
        try:
            await self._pipe.send(request)
        except ProtocolError as error:
            raise InvalidRequest(f"The request cannot be given to the engine: {error.message}.") from error
        except ConnectionError:
            # The worker is ending: on_end() tells every open request why, and this one is open.
            return

    def _deliver(self, event: EngineEvent) -> None:
        entry = self._open.get(event.id)
        if entry is None:  # aborted while the event was on its way
            if isinstance(event, StateKept):
                self.drop_state(event.id)
            return
        if isinstance(event, Failed | RequestCompleted):
            entry.since = None
        if entry.inbox is not None:
            entry.inbox.put(event)
        elif isinstance(event, Failed):
            entry.fail(error_from_payload(event.code, event.payload))


def _too_complex(end: WorkerEnd) -> GrammarTooComplex:
    seconds = end.stall.seconds if end.stall else 0.0
    return GrammarTooComplex(
        f"The grammar took more than {seconds:.1f} s for one token; the engine was ended."
        " Use bounded repeats and fewer nested optional parts."
    )
