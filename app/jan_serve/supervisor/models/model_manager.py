"""The model manager: leases, loads on demand, unloads, suspension and shutdown. Knows no prompts and no HTTP.

Only one task (`_run`) loads, unloads and grants from the queue: the others join it or count a lease, and wake the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from jan_serve.core.caller import client as current_client
from jan_serve.core.models import ManagerSnapshot, ModelSource
from jan_serve.core.trace import current_trace
from jan_serve.errors import Draining, JanServeError, ModelInUse, Overloaded, Unavailable, copy_error
from jan_serve.ipc.messages import EngineSettings
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.supervisor.models.held_model import HeldModel
from jan_serve.supervisor.models.loaded_models import LoadedModels
from jan_serve.supervisor.models.resident_model import LoadState, ResidentModel, model_status
from jan_serve.supervisor.models.source_resolver import LoadPreparation, MemoryMeter, Resolved, SourceResolver
from jan_serve.supervisor.workers.spare_worker import SpareWorker

logger = logging.getLogger(__name__)

Timer = Callable[[asyncio.Event, float | None], Awaitable[None]]
"""Returns when the event is set or after these seconds; None is no limit."""

_BEGINS_S = 0.1
"""A header is read within this time, unless its disk is slow; then the server starts first."""

_RETRY_AFTER_STOP_S = 5.0
"""A stopped server is often being restarted."""


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class ModelManager:
    """All models of this server. Event loop only; no method blocks."""

    def __init__(
        self,
        resolver: SourceResolver,
        worker_command: Sequence[str],
        limits: ManagerLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        meter: MemoryMeter | None = None,
        timer: Timer = wait_at_most,
        on_load: Callable[[], None] = lambda: None,
        spare: SpareWorker | None = None,
    ) -> None:
        """worker_command: of a worker process. clock: monotonic seconds; timer follows it. meter: None does not
        measure memory. on_load: called when a load has begun; it must not block. spare: the first load takes its
        process. The manager closes it."""
        self._resolver = resolver
        self._limits = limits or ManagerLimits()
        self._clock = clock
        preparation = LoadPreparation(resolver, meter, self._notify, clock)
        self._spare = spare or SpareWorker()
        self._on_load = on_load
        self._load_begun = asyncio.Event()
        self._loaded = LoadedModels(
            worker_command, self._limits, clock, preparation, self._notify, self._spare, self._begin
        )
        self._preload: asyncio.Task[None] | None = None
        self._reports: set[asyncio.Task[None]] = set()
        """Running ones: no request waits for them."""
        self._open_requests: Counter[tuple[str, str]] = Counter()
        """By model and client; waiting ones too."""
        self.draining = False
        self._closed: JanServeError | None = None
        self._idle = asyncio.Event()
        self._timer = timer
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def models(self) -> tuple[ModelSource, ...]:
        """Every model that a request may name, loaded or not. Reads the disk, in a thread."""
        return await asyncio.to_thread(self._resolver.list)

    @contextlib.asynccontextmanager
    async def lease(self, name: str | None, ttl_s: float | None = None) -> AsyncGenerator[HeldModel]:
        """Hold a model while the block runs, loading it first if needed. None is the default model.

        ttl_s: how long it then stays loaded while idle, instead of the configured time; negative is for ever.
        Raises ModelNotFound, InvalidModel, ModelFailed, InsufficientMemory, Overloaded, Draining, and the error of
        `suspend`. Over a crash inside the block the requests go on; see HeldModel.
        """
        self._refuse_when_closed()
        resolved = await asyncio.to_thread(self._resolver.resolve, name)
        caller = resolved.source.name, current_client.get()
        self._open_requests[caller] += 1
        try:
            async with self._held(name, resolved, ttl_s) as held:
                yield held
        finally:
            self._open_requests[caller] -= 1
            if not self._open_requests[caller]:
                del self._open_requests[caller]

    @contextlib.asynccontextmanager
    async def _held(
        self, name: str | None, resolved: Resolved, ttl_s: float | None
    ) -> AsyncGenerator[HeldModel]:
        resident = await self._acquire(resolved)
        while resident.leases == 1 and not await self._responds(resident):
            # The worker died idle. The request has not been sent, so a new worker can take it.
            resident.release()
            self._notify()
            resident = await self._acquire(resolved)
        self._taken(resident, ttl_s)
        since = self._clock()
        history = self._loaded.histories[resolved.source.name]

        async def next_resident() -> ResidentModel:
            resident = await self._acquire_again(name, resolved)
            self._taken(resident, ttl_s)
            return resident

        held = HeldModel(resident, resolved.adapter, history.trials, self._limits.retry, next_resident)
        try:
            yield held
        finally:
            held.resident.release()
            history.served(self._clock() - since)
            self._notify()

    def _taken(self, resident: ResidentModel, ttl_s: float | None) -> None:
        if ttl_s is not None:
            resident.ttl_s = ttl_s
        assert resident.client is not None
        if not resident.is_reported:
            resident.is_reported = True
            told = asyncio.to_thread(self._resolver.loaded, resident.source, resident.client.facts)
            report = asyncio.create_task(told, name="report load")
            self._reports.add(report)
            report.add_done_callback(self._reports.discard)

    async def _responds(self, resident: ResidentModel) -> bool:
        try:
            return await resident.worker.responds()
        except asyncio.CancelledError:
            resident.release()
            self._notify()
            raise

    async def load_settings(self, name: str) -> EngineSettings:
        """Those with which a load starts. Reads a header, in a thread. Raises ModelNotFound, InvalidModel."""
        source = (await asyncio.to_thread(self._resolver.resolve, name)).source
        return (await asyncio.to_thread(self._resolver.needs, source)).settings

    async def load(self, name: str | None, ttl_s: float | None = None) -> str:
        """Load a model; returns its canonical name. Raises as `lease`; cancelling stops the load."""
        async with self.lease(name, ttl_s) as client:
            return client.name

    async def preload(self, name: str | None) -> None:
        """Load it before its first request, which reports a failure. Returns once it has begun, or soon."""
        self._preload = asyncio.create_task(self._try_load(name), name="preload")
        begun = asyncio.create_task(self._load_begun.wait())
        await asyncio.wait({self._preload, begun}, timeout=_BEGINS_S, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()

    async def _try_load(self, name: str | None) -> None:
        try:
            await self.load(name)
        except JanServeError as error:
            level = logging.DEBUG if self.draining else logging.WARNING
            logger.log(level, "the model is not ready: %s", error.message)

    def _begin(self) -> None:
        self._load_begun.set()
        self._on_load()

    async def unload(self, name: str, *, force: bool = False) -> bool:
        """Unload a model; False if it was not loaded. Returns when its memory is free. A load stops, and the requests
        that wait for it are rejected. Running requests finish first while new ones wait; with force, running requests
        fail. Raises ModelNotFound, InvalidRequest."""
        source = (await asyncio.to_thread(self._resolver.resolve, name)).source
        resident = self._loaded.residents.get(source.name)
        error = Unavailable(f"The model `{source.name}` was unloaded by request.")
        if resident is None:
            waited_for = self._loaded.queue.waiting(source.name) > 0
            self._loaded.queue.refuse(source, error)
            return waited_for
        resident.retiring = True
        if resident.state is LoadState.LOADING:
            self._loaded.queue.refuse(resident.source, error)
        elif force and resident.client is not None:
            resident.client.fail_all(error)
        self._notify()
        await resident.gone.wait()
        return True

    @contextlib.asynccontextmanager
    async def removing(self, name: str) -> AsyncGenerator[ModelSource]:
        """Keep a model unloaded while the block deletes its file; requests for it wait.

        name: see `SourceResolver.resolve_exact`; the block deletes the model that this yields, whatever the name.
        Raises ModelNotFound, InvalidRequest; ModelInUse if a request holds it, waits for it or loads it, or if it is
        already being removed.
        """
        source = await asyncio.to_thread(self._resolver.resolve_exact, name)
        if source.name in self._loaded.being_removed:
            raise ModelInUse(f"The model `{source.name}` is being deleted.", param="model")
        resident = self._loaded.residents.get(source.name)
        loading = resident is not None and resident.state is LoadState.LOADING
        if loading or (resident is not None and resident.leases) or self._loaded.queue.waiting(source.name):
            raise ModelInUse(f"The model `{source.name}` is in use. Unload it first.", param="model")
        self._loaded.being_removed.add(source.name)
        try:
            if resident is not None:
                resident.retiring = True
                self._notify()
                await resident.gone.wait()
            yield source
        finally:
            self._loaded.being_removed.discard(source.name)
            self._notify()

    def snapshot(self) -> ManagerSnapshot:
        """Every model that was requested, as of now. Never waits for a worker."""
        now = self._clock()
        statuses = tuple(
            model_status(history, self._loaded.residents.get(name), self._loaded.queue.waiting(name), now)
            for name, history in self._loaded.histories.items()
        )
        return ManagerSnapshot(draining=self.draining, models=statuses)

    async def suspend(self, error: JanServeError, drain_s: float) -> None:
        """Reject requests with this error until `resume`, and end all workers; running requests have drain_s. Returns
        when the memory is free. Requests are rejected before their model name is resolved."""
        self._closed = error
        await self._end_all(error, drain_s)

    def resume(self) -> None:
        """Accept requests again; they load their models. No effect while the server drains."""
        if not self.draining:
            self._closed = None

    async def shutdown(self, drain_s: float) -> None:
        """Reject new requests, give those that hold or wait for a model drain_s to finish, then end all workers. A
        second call, with less time, shortens the wait. Returns when every worker is reaped."""
        self.draining = True
        message = "The server is shutting down and takes no new requests."
        self._closed = Draining(message, retry_after=_RETRY_AFTER_STOP_S)
        await self._end_all(
            Draining("The server is shutting down.", retry_after=_RETRY_AFTER_STOP_S), drain_s
        )
        await self._spare.close()
        tasks = [task for task in (self._preload, self._task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._reports, return_exceptions=True)
        self._loaded.forget()

    async def _end_all(self, error: JanServeError, drain_s: float) -> None:
        """Give running and waiting requests drain_s; then fail them with the error, and end every worker."""
        self._idle.clear()
        self._notify()
        if drain_s > 0 and self._loaded.busy:
            logger.info("waiting up to %.0f s for running requests", drain_s)
            await wait_at_most(self._idle, drain_s)
        self._loaded.refuse_all(error)
        for resident in self._loaded.residents.values():
            if resident.client is not None:
                resident.client.fail_all(error)
        self._idle.set()
        # A client that leaves its `suspend` must not cancel them, as `gather` would: a model would stay half unloaded.
        if stops := [resident.stop() for resident in self._loaded.residents.values()]:
            await asyncio.wait(stops)

    async def _acquire(self, resolved: Resolved) -> ResidentModel:
        self._refuse_when_closed()  # it may have closed while the name was resolved
        source = resolved.source
        self._admit(source, resolved.retention)
        resident = self._loaded.residents.get(source.name)
        is_there = resident is not None and resident.usable and resident.source == source
        if resident is not None and is_there and not self._loaded.must_wait(source):
            resident.hold()
            return resident
        with current_trace().spends("load"):
            return await self._wait_for(source, patient=False)

    async def _acquire_again(self, name: str | None, before: Resolved) -> ResidentModel:
        """The next worker of a model, for a request that held the one before: it has its place in the queue already.
        Raises as `lease`; Unavailable if the file or the settings of its load have changed."""
        source = (await asyncio.to_thread(self._resolver.resolve, name)).source
        self._refuse_when_closed()
        if source != before.source:
            raise Unavailable(f"The model `{source.name}` changed while it answered. Send the request again.")
        return await self._wait_for(source, patient=True)

    async def _wait_for(self, source: ModelSource, *, patient: bool) -> ResidentModel:
        granted = self._loaded.queue.join(source, patient=patient)
        self._notify()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                granted.result().release()
            raise
        finally:
            self._loaded.queue.leave(granted)
            self._notify()

    def _admit(self, source: ModelSource, retention: Retention) -> None:
        """Raises Overloaded when the queue of this model is full. A client's only request is let in up to twice the
        limit: many requests of one fill the first half, and many clients cannot grow the queue without end."""
        history = self._loaded.seen(source, retention)
        waiting = self._loaded.queue.waiting(source.name)
        resident = self._loaded.residents.get(source.name)
        held = resident.leases if resident is not None else 0
        queued = waiting + held - history.parallel
        caller = current_client.get()
        is_only = bool(caller) and self._open_requests[source.name, caller] == 1
        limit = self._limits.max_queue * (2 if is_only else 1)
        if queued >= limit:
            raise Overloaded(
                f"The model `{source.name}` is busy: {max(queued, 0)} requests are waiting, the limit is {limit}."
                " Try again later.",
                retry_after=history.retry_after_s(queued + 1),
            )

    def _refuse_when_closed(self) -> None:
        if self._closed is not None:
            raise copy_error(self._closed)

    def _notify(self) -> None:
        """Wake the manager's task after a change. Starts it on first use."""
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="model manager")

    async def _run(self) -> None:
        """The only task that loads, unloads and grants to waiting requests."""
        while True:
            try:
                delay_s = self._loaded.advance()
            except Exception:
                logger.exception("the model manager failed; rejecting waiting requests")
                self._loaded.refuse_all(JanServeError("The model could not be provided."))
                delay_s = None
            if not self._loaded.busy:
                self._idle.set()
            await self._timer(self._wake, delay_s)
            self._wake.clear()
