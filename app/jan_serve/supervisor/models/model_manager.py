"""Models for requests: leases, loads on demand, unloading, sleep, the end of all of it.

Implements `generation.ports.ModelLeases`. One task (`_run`) is the only writer of what is loaded, which is kept in
`residents`: everybody else joins the queue or counts a lease, and wakes it. Knows nothing of prompts or HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from jan_serve.core.model_source import ModelSource
from jan_serve.core.model_status import ManagerSnapshot
from jan_serve.errors import Draining, JanServeError, ModelInUse, Overloaded, Unavailable, copy_error
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.load_preparation import LoadPreparation, MemoryMeter
from jan_serve.supervisor.models.loaded_models import LoadedModels
from jan_serve.supervisor.models.model_slot import ModelSlot, SlotState
from jan_serve.supervisor.models.snapshot import model_status
from jan_serve.supervisor.models.source_resolver import Retention, SourceResolver
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient

logger = logging.getLogger(__name__)

Timer = Callable[[asyncio.Event, float | None], Awaitable[None]]
"""Returns when the event is set or after these seconds; None is no limit."""

_RETRY_AFTER_STOP_S = 5.0
"""A stopped server is often one that is being restarted."""


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """The timer of the event loop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class ModelManager:
    """All models of this front. Lives on one event loop; nothing in it blocks."""

    def __init__(
        self,
        resolver: SourceResolver,
        worker_command: Sequence[str],
        limits: ManagerLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        meter: MemoryMeter | None = None,
        timer: Timer = wait_at_most,
    ) -> None:
        """worker_command: see `worker_process.default_worker_command`. clock: seconds, monotonic; timer goes by it.

        meter: None does not look at memory.
        """
        self._resolver = resolver
        self._limits = limits or ManagerLimits()
        self._clock = clock
        preparation = LoadPreparation(resolver, meter, self._poke, clock)
        self._residents = LoadedModels(worker_command, self._limits, clock, preparation, self._poke)
        self._draining = False
        self._closed: JanServeError | None = None
        self._idle = asyncio.Event()
        self._timer = timer
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def draining(self) -> bool:
        """New requests are refused."""
        return self._draining

    async def models(self) -> tuple[ModelSource, ...]:
        """Every model that can be asked for, loaded or not. Reads the disk, in a thread."""
        return await asyncio.to_thread(self._resolver.list)

    @contextlib.asynccontextmanager
    async def lease(
        self, name: str | None, keep_alive_s: float | None = None
    ) -> AsyncGenerator[WorkerEngineClient]:
        """Hold a model while the block runs, loading it first if needed. None is the default model.

        keep_alive_s: how long it stays afterwards without a request, instead of as configured; negative is for ever.
        Raises ModelNotFound, InvalidModel, ModelFailed, InsufficientMemory, Overloaded, Draining, and what `suspend`
        was given. A crash inside the block is raised by the client's methods; the lease stays a valid hold on nothing.
        """
        self._refuse_when_closed()
        source, retention, adapter = await asyncio.to_thread(self._resolve, name)
        slot = await self._acquire(source, retention)
        while slot.leases == 1 and not await self._responds(slot):
            # It died while nobody used it. The request has not been sent, so it need not be lost for it.
            slot.release()
            self._poke()
            slot = await self._acquire(source, retention)
        if keep_alive_s is not None:
            slot.keep_alive_s = keep_alive_s
        since = self._clock()
        assert slot.client is not None
        try:
            yield slot.client if adapter is None else slot.client.adapted(adapter)
        finally:
            slot.release()
            self._residents.records[source.name].served(self._clock() - since)
            self._poke()

    async def _responds(self, slot: ModelSlot) -> bool:
        try:
            return await slot.worker.responds()
        except asyncio.CancelledError:
            slot.release()
            self._poke()
            raise

    def _resolve(self, name: str | None) -> tuple[ModelSource, Retention, str | None]:
        source = self._resolver.resolve(name)
        adapter = self._resolver.adapter(name) if source.adapters else None
        return source, self._resolver.retention(source), adapter

    async def load(self, name: str | None, keep_alive_s: float | None = None) -> str:
        """Have a model in memory, and return its canonical name. Raises as `lease` does; cancelling stops the load."""
        async with self.lease(name, keep_alive_s) as client:
            return client.name

    async def unload(self, name: str, *, force: bool = False) -> bool:
        """Take a model out of memory; False where it was not there. Returns when its memory is free.

        A load is broken off, and refuses who waits for it. Requests that run are waited for, and new ones with it; with
        force they end with an error. Raises ModelNotFound, InvalidRequest.
        """
        source = await asyncio.to_thread(self._resolver.resolve, name)
        slot = self._residents.slots.get(source.name)
        error = Unavailable(f"The model `{source.name}` was unloaded by request.")
        if slot is None:
            waited_for = self._residents.queue.waiting(source.name) > 0
            self._residents.queue.refuse(source, error)
            return waited_for
        slot.retiring = True
        if slot.state is SlotState.LOADING:
            self._residents.queue.refuse(slot.source, error)
        elif force and slot.client is not None:
            slot.client.fail_all(error)
        self._poke()
        await slot.gone.wait()
        return True

    @contextlib.asynccontextmanager
    async def removing(self, name: str) -> AsyncGenerator[ModelSource]:
        """Keep a model out of memory while the block deletes its file; requests for it wait, and then look again.

        name: whole, see `SourceResolver.resolve_exact`; who deletes goes by what this yields, not by the name.
        Raises ModelNotFound, InvalidRequest; ModelInUse where a request holds it, waits for it or loads it, or where
        it is being removed already.
        """
        source = await asyncio.to_thread(self._resolver.resolve_exact, name)
        if source.name in self._residents.being_removed:
            raise ModelInUse(f"The model `{source.name}` is being deleted.", param="model")
        slot = self._residents.slots.get(source.name)
        loading = slot is not None and slot.state is SlotState.LOADING
        if loading or (slot is not None and slot.leases) or self._residents.queue.waiting(source.name):
            raise ModelInUse(f"The model `{source.name}` is in use. Unload it first.", param="model")
        self._residents.being_removed.add(source.name)
        try:
            if slot is not None:
                slot.retiring = True
                self._poke()
                await slot.gone.wait()
            yield source
        finally:
            self._residents.being_removed.discard(source.name)
            self._poke()

    def snapshot(self) -> ManagerSnapshot:
        """The state of every model that was asked for, as of now. Never waits for a worker."""
        now = self._clock()
        statuses = tuple(
            model_status(record, self._residents.slots.get(name), self._residents.queue.waiting(name), now)
            for name, record in self._residents.records.items()
        )
        return ManagerSnapshot(draining=self._draining, models=statuses)

    async def suspend(self, error: JanServeError, drain_s: float) -> None:
        """Refuse requests with this error until `resume`, and end all workers; running requests have drain_s.

        Returns when the memory is free. What requests a model then is refused before its name is looked at.
        """
        self._closed = error
        await self._end_all(error, drain_s)

    def resume(self) -> None:
        """Serve again; models are loaded by their next requests. Nothing happens while the server drains."""
        if not self._draining:
            self._closed = None

    async def shutdown(self, drain_s: float) -> None:
        """Refuse new requests, let those that hold or wait for a model finish for drain_s, then end all workers.

        May be called again, with less time, while it waits. Returns when every worker is reaped.
        """
        self._draining = True
        message = "The server is shutting down and takes no new requests."
        self._closed = Draining(message, retry_after=_RETRY_AFTER_STOP_S)
        await self._end_all(
            Draining("The server is shutting down.", retry_after=_RETRY_AFTER_STOP_S), drain_s
        )
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._residents.forget()

    async def _end_all(self, error: JanServeError, drain_s: float) -> None:
        """Let what runs and waits finish for drain_s; then fail it with the error, and end every worker."""
        self._idle.clear()
        self._poke()
        if drain_s > 0 and self._residents.busy:
            logger.info("waiting up to %.0f s for running requests", drain_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_s):
                    await self._idle.wait()
        self._residents.refuse_all(error)
        for slot in self._residents.slots.values():
            if slot.client is not None:
                slot.client.fail_all(error)
        self._idle.set()
        await asyncio.gather(*(slot.stop() for slot in self._residents.slots.values()))

    async def _acquire(self, source: ModelSource, retention: Retention) -> ModelSlot:
        self._refuse_when_closed()  # it may have begun while the name was resolved
        self._admit(source, retention)
        slot = self._residents.slots.get(source.name)
        if (
            slot is not None
            and slot.usable
            and slot.source == source
            and not self._residents.must_wait(source)
        ):
            slot.hold()
            return slot
        waiter = self._residents.queue.join(source)
        self._poke()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            granted = waiter.granted
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                granted.result().release()
            raise
        finally:
            self._residents.queue.leave(waiter)
            self._poke()

    def _admit(self, source: ModelSource, retention: Retention) -> None:
        """Raises Overloaded when the queue of this model is full."""
        record = self._residents.seen(source, retention)
        waiting = self._residents.queue.waiting(source.name)
        slot = self._residents.slots.get(source.name)
        held = slot.leases if slot is not None else 0
        queued = waiting + held - record.parallel
        if queued >= self._limits.max_queue:
            raise Overloaded(
                f"The model `{source.name}` is busy: {max(queued, 0)} requests are waiting, the limit is"
                f" {self._limits.max_queue}. Try again later.",
                retry_after=record.retry_after_s(queued + 1),
            )

    def _refuse_when_closed(self) -> None:
        if self._closed is not None:
            raise copy_error(self._closed)

    def _poke(self) -> None:
        """Something changed: let the one task look. Starts it on first use."""
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="model manager")

    async def _run(self) -> None:
        """The only place where models come, go and are granted to those who wait."""
        while True:
            try:
                delay_s = self._residents.advance()
            except Exception:
                logger.exception("the model manager failed; refusing what waits")
                self._residents.refuse_all(JanServeError("The model could not be provided."))
                delay_s = None
            if not self._residents.busy:
                self._idle.set()
            await self._timer(self._wake, delay_s)
            self._wake.clear()
