"""One worker process from spawn to reap: its states, pipe, pulse and end.

    starting → loading → ready → stopping → exited
         └────────┴────────┴──────────────→ failed      (it crashed, or was killed for a stall)

It passes events to its client and knows no requests. It never restarts; see `model_manager`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.errors import JanServeError, ProtocolError, error_from_payload
from jan_serve.ipc.async_channel import AsyncChannel
from jan_serve.ipc.messages import (
    LoadFailed,
    LoadModel,
    LoadProgress,
    PingRequest,
    Pong,
    ShutdownRequest,
    WorkerEvent,
    WorkerRequest,
)
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.child_process import (
    ChildProcess,
    StderrReader,
    StderrTail,
    child_environment,
)
from jan_serve.supervisor.workers.spare_worker import SpareWorker
from jan_serve.supervisor.workers.watchdog import Stall, Watchdog

logger = logging.getLogger(__name__)
worker_log = logging.getLogger("jan_serve.worker")

_EXIT_AND_EOF_APART_S = 1.0
_PING_PATIENCE_S = 1.0
_SUSPENDED_S = 5.0
_ENDED_WELL = "exit status 0"


class WorkerState(StrEnum):
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    EXITED = "exited"
    FAILED = "failed"


class WorkerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended. requested: by `stop`. words: the reason on its stderr, safe to show. status: "exit status
    3", "signal SIGSEGV". stall: the reason, if it was killed for one."""

    requested: bool
    status: str
    words: str = ""
    stall: Stall | None = None

    def __str__(self) -> str:
        cause = f"{self.stall}, ended" if self.stall else self.status
        if self.requested and self.status == _ENDED_WELL:
            return cause
        return f"{cause}: {self.words}" if self.words else cause


LoadOutcome = ModelFacts | JanServeError | WorkerEnd


class WorkerListener(Protocol):
    """The owner of a worker's requests. None of its methods blocks or raises."""

    def on_event(self, event: WorkerEvent) -> None:
        """Take an answer or a step; never a load event or a pulse."""

    def on_end(self, end: WorkerEnd) -> None:
        """Take note that the process is reaped; no event follows. Called once."""

    def oldest_request_s(self) -> float | None:
        """Age of the oldest open request; None if there is none."""


class WorkerProcess:
    def __init__(
        self,
        name: str,
        command: Sequence[str],
        limits: WorkerLimits,
        *,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        spare: SpareWorker | None = None,
    ) -> None:
        """on_change is called after every change of `state`, `load_fraction` or `outcome`; it must not block. spare:
        a process that already runs is taken from it."""
        self.state = WorkerState.STARTING
        self.load_fraction = 0.0
        self.outcome: LoadOutcome | None = None
        self.end: WorkerEnd | None = None
        self.ending = False
        """Its pipe has ended or it was killed: `end` follows, and nothing more is sent."""
        self._name = name
        self._command = tuple(command)
        self._limits = limits
        self._on_change = on_change
        self._clock = clock
        self._spare = spare
        self._client: WorkerListener | None = None
        self._process: ChildProcess | None = None
        self._channel: AsyncChannel | None = None
        self._tail = StderrTail()
        self._watchdog = Watchdog(limits, clock())
        self._stall: Stall | None = None
        self._stop_requested = False
        self._work = asyncio.Event()
        self._answered = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def pong(self) -> Pong | None:
        """The last pulse; its stats are as old as that."""
        return self._watchdog.pong

    async def start(self, load: LoadModel) -> None:
        """Spawn it or take the spare, and send it the load, whose end is `outcome`. Raises OSError."""
        environment = child_environment(os.environ, huge_pages=load.settings.huge_pages)
        process = self._spare.take(environment) if self._spare is not None else None
        self._process = process or await ChildProcess.spawn(self._command, environment)
        self._channel = AsyncChannel(self._process.stdout, self._process.stdin)
        self._set_state(WorkerState.LOADING)
        self._life = asyncio.create_task(self._live(), name=f"worker {self._process.pid}")
        self._channel.send_nowait(load)

    def listen(self, client: WorkerListener) -> None:
        """Pass events to this client. Call it when the outcome is facts, before the first request."""
        self._client = client
        if self.end is not None:
            client.on_end(self.end)

    async def send(self, request: WorkerRequest) -> None:
        """Waits while the pipe is full. Raises ConnectionError if the worker is gone."""
        if self._channel is None or self.end is not None:
            raise ConnectionError("the worker is gone")
        self._work.set()
        await self._channel.send(request)

    def send_nowait(self, request: WorkerRequest) -> None:
        """Never waits: for small requests. Dropped if the worker is gone."""
        if self._channel is not None and self.end is None:
            self._channel.send_nowait(request)

    async def responds(self) -> bool:
        """Ping it: False if it is gone, even if its end was not noticed yet. Takes a fraction of a millisecond, even
        during a decode. A worker that stays silent counts as present: the watchdog handles it."""
        if self.ending or self.end is not None:
            return False
        answer = self._answered
        self._work.set()
        self.send_nowait(PingRequest(self._watchdog.next_nonce(self._clock())))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PING_PATIENCE_S):
                await answer.wait()
        return not self.ending

    async def stop(self) -> None:
        """Request its end, and kill it after limits.stop_s. Returns once it is reaped. Safe at any time."""
        if self._process is None or self._life is None:
            return
        if self.end is None and not self._stop_requested:
            self._stop_requested = True
            self._set_state(WorkerState.STOPPING)
            self.send_nowait(ShutdownRequest())
        try:
            async with asyncio.timeout(self._limits.stop_s):
                await asyncio.shield(self._life)
        except TimeoutError:
            self._kill()
            await asyncio.shield(self._life)

    async def _live(self) -> None:
        """The life of the process: nothing of it is left when this returns."""
        process = self._process
        assert process is not None
        stderr = StderrReader(process, self._tail, worker_log)
        watch = asyncio.create_task(self._watch())
        try:
            await self._until_end(process, watch)
        except Exception:
            # A bug in the listener. Without events, or its watch, the worker is useless: kill it, which fails its
            # requests.
            logger.exception("cannot handle the events of worker %s of %s", process.pid, self._name)
        finally:
            watch.cancel()
            self._kill()
            await process.exited.wait()
            await stderr.close()
            process.close()
            await asyncio.gather(watch, return_exceptions=True)
            self._finish(process)

    async def _until_end(self, process: ChildProcess, watch: asyncio.Task[None]) -> None:
        """Read events until the pipe or the process ends, then wait briefly for the other. Raises as the watch."""
        events = asyncio.create_task(self._read_events())
        exited = asyncio.create_task(process.exited.wait())
        try:
            await asyncio.wait({events, exited, watch}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                watch.result()
                await asyncio.wait({events, exited}, return_when=asyncio.FIRST_COMPLETED)
            self._set_ending()
            # After the pipe's end the worker exits: wait for its exit status rather than kill it.
            await asyncio.wait({events, exited}, timeout=_EXIT_AND_EOF_APART_S)
            if exited.done() and not events.done():
                # A descendant holds the pipe open, so the group exists and its id is not reused.
                process.kill_group()
            elif events.done():
                events.result()
        finally:
            events.cancel()
            exited.cancel()
            await asyncio.gather(events, exited, return_exceptions=True)

    async def _read_events(self) -> None:
        assert self._channel is not None
        try:
            while (event := await self._channel.receive()) is not None:
                self._dispatch(event)
        except ProtocolError as error:
            logger.error("worker %s of %s broke the protocol: %s", self.pid, self._name, error)
            self._tail.feed(f"protocol error: {error}\n".encode())
            self._kill()
        except ConnectionError as error:
            logger.debug("pipe of worker %s: %s", self.pid, error)

    def _dispatch(self, event: WorkerEvent) -> None:
        match event:
            case Pong():
                self._watchdog.ponged(event)
                self._wake_pingers()
            case LoadProgress():
                self._watchdog.progressed(self._clock())
                self.load_fraction = event.fraction
                self._on_change()
            case ModelFacts() if self.state is WorkerState.LOADING:
                self._watchdog.ready(self._clock())
                self.outcome = event
                self._set_state(WorkerState.READY)
            case LoadFailed() if self.outcome is None:
                self.outcome = error_from_payload(event.code, event.payload)
                self._on_change()
            case _ if self._client is not None:
                self._client.on_event(event)
            case _:
                kind = type(event).__name__
                logger.warning("worker %s of %s sent %s too early", self.pid, self._name, kind)

    async def _watch(self) -> None:
        """Ping while there is work; kill the worker on a stall. An idle worker costs nothing."""
        # From here on a suspension is noticed, so time that passed before does not count.
        self._watchdog.progressed(self._clock())
        while self.state is WorkerState.LOADING:
            if not self._watchdog.is_unanswered:  # the first one waits until the process has started
                self.send_nowait(PingRequest(self._watchdog.next_nonce(self._clock())))
            await self._pause()
            if self._end_if_stalled(None):
                return
        if self.state is not WorkerState.READY:
            return  # `stop` limits the rest
        while True:
            await self._work.wait()
            self._work.clear()
            is_watched = True
            while is_watched:
                oldest = self._client.oldest_request_s() if self._client else None
                self.send_nowait(PingRequest(self._watchdog.next_nonce(self._clock())))
                await self._pause()
                if self._end_if_stalled(oldest):
                    return
                # The last pulse has the counters of all requests that have ended.
                is_watched = oldest is not None or not self._watchdog.resting()

    async def _pause(self) -> None:
        """Until the watchdog's next check. A pause that lasts far too long means that the machine was suspended."""
        delay_s, before = self._watchdog.delay_s(), self._clock()
        await asyncio.sleep(delay_s)
        late_s = self._clock() - before - delay_s
        if late_s >= _SUSPENDED_S:
            logger.warning(
                "the server was suspended, or got no processor time, for %.0f s: timeouts of worker %s restart",
                late_s,
                self.pid,
            )
            self._watchdog.resumed(self._clock())

    def _end_if_stalled(self, oldest_request_s: float | None) -> bool:
        stall = self._watchdog.stall(self._clock(), oldest_request_s or 0.0)
        if stall is None:
            return False
        logger.error("worker %s of %s: %s; killing it", self.pid, self._name, stall)
        self._stall = stall
        self._kill()
        return True

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._set_ending()
            self._process.kill()

    def _finish(self, process: ChildProcess) -> None:
        if self._channel is not None:
            self._channel.close()
        end = self.end = WorkerEnd(
            requested=self._stop_requested,
            status=process.status,
            words=self._tail.last_words(),
            stall=self._stall,
        )
        if self.outcome is None:
            self.outcome = end
        refused = isinstance(self.outcome, JanServeError)
        level = logging.INFO if end.requested or refused else logging.ERROR
        logger.log(level, "worker %s of %s ended: %s", process.pid, self._name, end)
        if self._client is not None:
            self._client.on_end(end)
        self._set_state(WorkerState.EXITED if end.requested else WorkerState.FAILED)

    def _set_ending(self) -> None:
        if not self.ending:
            self.ending = True
            self._wake_pingers()
            self._on_change()

    def _wake_pingers(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    def _set_state(self, state: WorkerState) -> None:
        self.state = state
        self._on_change()
