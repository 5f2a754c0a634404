"""Which models are in memory: leases, loads on demand, eviction, restarts after crashes, the end of all of it.

Implements `generation.ports.ModelLeases`. One task (`_run`) is the only writer of what is loaded: everybody else
joins the queue or counts a lease, and wakes it. Knows nothing of prompts or HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from jan_serve.errors import Draining, JanServeError, ModelFailed, ModelInUse, Overloaded, Unavailable
from jan_serve.ipc.messages import ModelFacts
from jan_serve.supervisor.engine_client import WorkerEngineClient
from jan_serve.supervisor.fresh_error import fresh
from jan_serve.supervisor.lease_queue import LeaseQueue
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.load_preparation import LoadPreparation, MemoryMeter, Prepared
from jan_serve.supervisor.model_record import ModelRecord
from jan_serve.supervisor.model_slot import ModelSlot, SlotState
from jan_serve.supervisor.placement import (
    Candidate,
    CannotFit,
    Decision,
    Evict,
    Excluded,
    Load,
    Room,
    Wait,
    free_for_models,
    place,
)
from jan_serve.supervisor.policy import Pause, Refuse
from jan_serve.supervisor.ports import ModelSource, Residence, Resolver
from jan_serve.supervisor.refusal import refusal
from jan_serve.supervisor.snapshot import ManagerSnapshot, model_status
from jan_serve.supervisor.timer import Timer, wait_at_most
from jan_serve.supervisor.worker_process import WorkerEnd, WorkerProcess

logger = logging.getLogger(__name__)

_RETRY_AFTER_STOP_S = 5.0
"""A stopped server is often one that is being restarted."""


class ModelManager:
    """All models of this front. Lives on one event loop; nothing in it blocks."""

    def __init__(
        self,
        resolver: Resolver,
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
        self._command = tuple(worker_command)
        self._limits = limits or ManagerLimits()
        self._clock = clock
        self._slots: dict[str, ModelSlot] = {}
        self._records: dict[str, ModelRecord] = {}
        self._queue: LeaseQueue[ModelSlot] = LeaseQueue()
        self._being_removed: set[str] = set()
        self._preparation = LoadPreparation(resolver, meter, self._poke)
        self._held_back: frozenset[str] = frozenset()
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
        source, residence, adapter = await asyncio.to_thread(self._resolve, name)
        slot = await self._acquire(source, residence)
        while slot.leases == 1 and not await self._responds(slot):
            # It died while nobody used it. The request has not been sent, so it need not be lost for it.
            slot.release()
            self._poke()
            slot = await self._acquire(source, residence)
        if keep_alive_s is not None:
            slot.keep_alive_s = keep_alive_s
        since = self._clock()
        assert slot.client is not None
        try:
            yield slot.client if adapter is None else slot.client.adapted(adapter)
        finally:
            slot.release()
            self._records[source.name].served(self._clock() - since)
            self._poke()

    async def _responds(self, slot: ModelSlot) -> bool:
        try:
            return await slot.worker.responds()
        except asyncio.CancelledError:
            slot.release()
            self._poke()
            raise

    def _resolve(self, name: str | None) -> tuple[ModelSource, Residence, str | None]:
        source = self._resolver.resolve(name)
        adapter = self._resolver.adapter(name) if source.adapters else None
        return source, self._resolver.residence(source), adapter

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
        slot = self._slots.get(source.name)
        error = Unavailable(f"The model `{source.name}` was unloaded by request.")
        if slot is None:
            waited_for = self._queue.waiting(source.name) > 0
            self._queue.refuse(source, error)
            return waited_for
        slot.retiring = True
        if slot.state is SlotState.LOADING:
            self._queue.refuse(slot.source, error)
        elif force and slot.client is not None:
            slot.client.fail_all(error)
        self._poke()
        await slot.gone.wait()
        return True

    @contextlib.asynccontextmanager
    async def removing(self, name: str) -> AsyncGenerator[ModelSource]:
        """Keep a model out of memory while the block deletes its file; requests for it wait, and then look again.

        Raises ModelNotFound, InvalidRequest; ModelInUse where a request holds it, waits for it or loads it.
        """
        source = await asyncio.to_thread(self._resolver.resolve, name)
        slot = self._slots.get(source.name)
        loading = slot is not None and slot.state is SlotState.LOADING
        if loading or (slot is not None and slot.leases) or self._queue.waiting(source.name):
            raise ModelInUse(f"The model `{source.name}` is in use. Unload it first.", param="model")
        self._being_removed.add(source.name)
        try:
            if slot is not None:
                slot.retiring = True
                self._poke()
                await slot.gone.wait()
            yield source
        finally:
            self._being_removed.discard(source.name)
            self._poke()

    def snapshot(self) -> ManagerSnapshot:
        """The state of every model that was asked for, as of now. Never waits for a worker."""
        now = self._clock()
        statuses = tuple(
            model_status(record, self._slots.get(name), self._queue.waiting(name), now)
            for name, record in self._records.items()
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
        self._preparation.forget_all()
        self._slots.clear()

    async def _end_all(self, error: JanServeError, drain_s: float) -> None:
        """Let what runs and waits finish for drain_s; then fail it with the error, and end every worker."""
        self._idle.clear()
        self._poke()
        if drain_s > 0 and self._busy():
            logger.info("waiting up to %.0f s for running requests", drain_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_s):
                    await self._idle.wait()
        for source in self._queue.sources():
            self._queue.refuse(source, error)
        for slot in self._slots.values():
            if slot.client is not None:
                slot.client.fail_all(error)
        self._idle.set()
        await asyncio.gather(*(slot.stop() for slot in self._slots.values()))

    async def _acquire(self, source: ModelSource, residence: Residence) -> ModelSlot:
        self._refuse_when_closed()  # it may have begun while the name was resolved
        self._admit(source, residence)
        slot = self._slots.get(source.name)
        if slot is not None and slot.usable and slot.source == source and not self._must_wait(source):
            slot.hold()
            return slot
        waiter = self._queue.join(source)
        self._poke()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            granted = waiter.granted
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                granted.result().release()
            raise
        finally:
            self._queue.leave(waiter)
            self._poke()

    def _must_wait(self, source: ModelSource) -> bool:
        """Others came first: for this model, or for another one that needs its room."""
        return source.name in self._held_back or self._queue.waiting(source.name) > 0

    def _admit(self, source: ModelSource, residence: Residence) -> None:
        """Raises Overloaded when the queue of this model is full."""
        record = self._records.get(source.name)
        if record is None:
            record = self._records[source.name] = ModelRecord(source, self._limits.restart)
        record.seen(source, residence)
        waiting = self._queue.waiting(source.name)
        slot = self._slots.get(source.name)
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
            raise fresh(self._closed)

    def _busy(self) -> bool:
        return len(self._queue) > 0 or any(slot.leases for slot in self._slots.values())

    def _poke(self) -> None:
        """Something changed: let the one task look. Starts it on first use."""
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="model manager")

    async def _run(self) -> None:
        """The only place where models come, go and are granted to those who wait."""
        while True:
            try:
                delay_s = self._advance()
            except Exception:
                logger.exception("the model manager failed; refusing what waits")
                for source in self._queue.sources():
                    self._queue.refuse(source, JanServeError("The model could not be provided."))
                delay_s = None
            await self._timer(self._wake, delay_s)
            self._wake.clear()

    def _advance(self) -> float | None:
        """Do everything that can be done now. Returns after how many seconds more can be done without a wake-up."""
        for slot in list(self._slots.values()):
            match slot.state:
                case SlotState.LOADING:
                    self._look_at_load(slot)
                case SlotState.READY if slot.worker.end is not None:
                    self._lost(slot, slot.worker.end)
                case SlotState.READY if slot.retiring and not slot.leases:
                    self._unload(slot, "as requested")
                case SlotState.GONE:
                    self._forget(slot)
                case _:
                    pass
        delays = [self._serve_queue(), self._unload_what_is_old()]
        if not self._busy():
            self._idle.set()
        return min((delay for delay in delays if delay is not None), default=None)

    def _unload(self, slot: ModelSlot, why: str) -> None:
        logger.info("unloading %s: %s", slot.source.name, why)
        slot.stop()

    def _forget(self, slot: ModelSlot) -> None:
        """Its memory is free, so what was measured before does not hold any more."""
        del self._slots[slot.source.name]
        self._preparation.forget_all()

    def _unload_what_is_old(self) -> float | None:
        """Unload what nobody has asked for as long as it should stay. Returns when the next one is due."""
        now = self._clock()
        due: list[float] = []
        for slot in self._slots.values():
            left_s = slot.idle_left_s(self._records[slot.source.name].residence, now)
            if left_s is None or slot.leases or self._queue.waiting(slot.source.name):
                continue
            if left_s > 0:
                due.append(left_s)
            else:
                self._unload(slot, "nobody asked for it")
        return min(due, default=None)

    def _look_at_load(self, slot: ModelSlot) -> None:
        match slot.outcome:
            case None:
                if slot.retiring or slot.source not in self._queue.sources():
                    logger.info("loading of %s was cancelled: nobody waits for it", slot.source.name)
                    slot.stop()
            case ModelFacts() as facts:
                self._records[slot.source.name].loaded(facts.parallel)
                logger.info("%s is ready: %s, pid %s", slot.source.name, _summary(facts), slot.worker.pid)
                slot.become_ready(facts)
                self._preparation.forget_all()
                if not slot.retiring:
                    self._grant(slot)
            case WorkerEnd() as end:
                self._lost(slot, end)
                record = self._records[slot.source.name]
                message = f"The model `{slot.source.name}` could not be loaded: {end}."
                verdict = record.verdict(self._clock())
                retry_after = verdict.delay_s if isinstance(verdict, Pause | Refuse) else None
                self._queue.refuse(slot.source, ModelFailed(message, retry_after=retry_after, param="model"))
            case JanServeError() as error:
                self._refuse_load(slot.source, error)
                slot.stop()

    def _lost(self, slot: ModelSlot, end: WorkerEnd) -> None:
        """Its worker ended by itself. The client has told its requests; their leases hold nothing."""
        now = self._clock()
        ready_for_s = now - slot.worker.ready_at if slot.worker.ready_at is not None else 0.0
        self._records[slot.source.name].ended(end, now, ready_for_s)
        slot.went()
        self._forget(slot)

    def _grant(self, slot: ModelSlot) -> None:
        for granted in self._queue.take(slot.source):
            slot.hold()
            granted.set_result(slot)

    def _serve_queue(self) -> float | None:
        """For each model that is waited for: grant, refuse, load, or make room. Returns the shortest back-off."""
        held_back: frozenset[str] | None = None
        now = self._clock()
        pauses: list[float] = []
        sources = self._queue.sources()
        self._preparation.keep_only(sources)
        for source in sources:
            if source.name in self._being_removed:
                continue
            slot = self._slots.get(source.name)
            if slot is not None and slot.source == source:
                if slot.usable and source.name not in (held_back or ()):
                    self._grant(slot)
                continue
            verdict = self._records[source.name].verdict(now)
            patience_s = self._limits.restart.patience_s
            if isinstance(verdict, Refuse) or (isinstance(verdict, Pause) and verdict.delay_s > patience_s):
                self._queue.refuse(source, self._records[source.name].refusal(verdict))
            elif isinstance(verdict, Pause):
                pauses.append(verdict.delay_s)
            elif held_back is None:
                # Those behind it get no room before it does, even where there is some for them.
                held_back = self._provide(source)
        self._held_back = held_back or frozenset()
        return min(pauses, default=None)

    def _provide(self, source: ModelSource) -> frozenset[str] | None:
        """Load it, make room for it, or refuse it. While it has to wait: the models that get no new request."""
        prepared = self._preparation.result(source)
        if prepared is None:
            return frozenset()
        if isinstance(prepared, JanServeError):
            self._refuse_load(source, prepared)
            return None
        match self._place(source, prepared):
            case Load():
                self._load(source, prepared)
                return None
            case Evict(names):
                for name in names:
                    self._unload(self._slots[name], f"{source.name} needs its room")
                return frozenset(names)
            case Wait(names):
                return frozenset(names)
            case CannotFit() | Excluded() as reason:
                others = [name for name in self._slots if name != source.name]
                self._refuse_load(source, refusal(source.name, prepared.footprint, reason, others))
                return None

    def _place(self, source: ModelSource, prepared: Prepared) -> Decision:
        slots = list(self._slots.values())
        free = free_on_device = 0
        if prepared.free is not None:
            taken = [slot.taken for slot in slots]
            free = free_for_models(prepared.free, taken, self._limits.memory_budget)
            on_their_way = sum(slot.taken.on_device for slot in slots if slot.state is SlotState.LOADING)
            free_on_device = max(0, sum(prepared.free.accelerators) - on_their_way)
        room = Room(free if prepared.free is not None else None, free_on_device, self._limits.max_loaded)
        size = prepared.footprint
        group = self._records[source.name].residence.group
        candidate = Candidate(source.name, size.least, size.total, size.on_device, group)
        return place(
            candidate, [slot.occupant(self._records[slot.source.name].residence) for slot in slots], room
        )

    def _refuse_load(self, source: ModelSource, error: JanServeError) -> None:
        logger.warning("%s could not be loaded: %s", source.name, error)
        self._records[source.name].reason = error.message
        self._queue.refuse(source, error)

    def _load(self, source: ModelSource, prepared: Prepared) -> None:
        worker = WorkerProcess(source.name, self._command, self._limits.worker, on_change=self._poke)
        slot = ModelSlot(source, prepared, worker, self._poke, self._clock)
        self._slots[source.name] = slot
        self._preparation.forget_all()
        logger.info("loading %s", source.name)
        slot.load()


def _summary(facts: ModelFacts) -> str:
    """What was loaded, where it computes, and how much fits."""
    layers = f", {facts.n_gpu_layers} of {facts.n_layer + 1} layers offloaded" if facts.n_gpu_layers else ""
    return (
        f"{facts.description} on {facts.device}{layers}, {facts.threads} threads,"
        f" context {facts.n_ctx} for {facts.parallel} at once, loaded in {facts.load_seconds:.1f} s"
    )
