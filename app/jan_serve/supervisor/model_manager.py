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
from jan_serve.ipc.messages import EngineStats, ModelFacts
from jan_serve.supervisor.engine_client import WorkerEngineClient
from jan_serve.supervisor.lease_queue import LeaseQueue
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.model_record import ModelRecord
from jan_serve.supervisor.model_slot import ModelSlot, SlotState
from jan_serve.supervisor.policy import Occupant, Pause, Refuse, choose_victim
from jan_serve.supervisor.ports import ModelSource, Resolver
from jan_serve.supervisor.snapshot import ManagerSnapshot, ModelState, ModelStatus
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
    ) -> None:
        """worker_command: see `worker_process.default_worker_command`. clock: seconds, monotonic."""
        self._resolver = resolver
        self._command = tuple(worker_command)
        self._limits = limits or ManagerLimits()
        self._clock = clock
        self._slots: dict[str, ModelSlot] = {}
        self._records: dict[str, ModelRecord] = {}
        self._queue: LeaseQueue[ModelSlot] = LeaseQueue()
        self._being_removed: set[str] = set()
        self._wants_room = False
        self._draining = False
        self._drained = asyncio.Event()
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
    async def lease(self, name: str | None) -> AsyncGenerator[WorkerEngineClient]:
        """Hold a model while the block runs, loading it first if needed. None is the default model.

        Raises ModelNotFound, InvalidModel, ModelFailed, InsufficientMemory, Overloaded, Draining. A crash inside the
        block is raised by the client's methods; the lease stays a valid hold on nothing.
        """
        self._refuse_when_draining()
        source = await asyncio.to_thread(self._resolver.resolve, name)
        slot = await self._acquire(source)
        while slot.leases == 1 and not await self._responds(slot):
            # It died while nobody used it. The request has not been sent, so it need not be lost for it.
            slot.release()
            self._poke()
            slot = await self._acquire(source)
        since = self._clock()
        assert slot.client is not None
        try:
            yield slot.client
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

    async def load(self, name: str | None) -> str:
        """Have a model in memory, and return its canonical name. Raises as `lease` does; cancelling stops the load."""
        async with self.lease(name) as client:
            return client.name

    async def unload(self, name: str, *, force: bool = False) -> bool:
        """Take a model out of memory; False where it was not there. Returns when its memory is free.

        A load is broken off, and refuses who waits for it. Requests that run are waited for, and new ones with it; with
        force they end with an error. Raises ModelNotFound, InvalidRequest.
        """
        source = await asyncio.to_thread(self._resolver.resolve, name)
        slot = self._slots.get(source.name)
        if slot is None:
            return False
        error = Unavailable(f"The model `{source.name}` was unloaded by request.")
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
        statuses = tuple(self._status(record, now) for record in self._records.values())
        return ManagerSnapshot(draining=self._draining, models=statuses)

    async def shutdown(self, drain_s: float) -> None:
        """Refuse new requests, let those that hold or wait for a model finish for drain_s, then end all workers.

        May be called again, with less time, while it waits. Returns when every worker is reaped.
        """
        self._draining = True
        self._poke()
        if drain_s > 0 and self._busy():
            logger.info("draining: waiting up to %.0f s for running requests", drain_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(drain_s):
                    await self._drained.wait()
        error = Draining("The server is shutting down.", retry_after=_RETRY_AFTER_STOP_S)
        for source in self._queue.sources():
            self._queue.refuse(source, error)
        for slot in self._slots.values():
            if slot.client is not None:
                slot.client.fail_all(error)
        self._drained.set()
        await asyncio.gather(*(slot.stop() for slot in self._slots.values()))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._slots.clear()

    async def _acquire(self, source: ModelSource) -> ModelSlot:
        self._refuse_when_draining()  # it may have begun while the name was resolved
        self._admit(source)
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
        return self._wants_room or self._queue.waiting(source.name) > 0

    def _admit(self, source: ModelSource) -> None:
        """Raises Overloaded when the queue of this model is full."""
        record = self._records.get(source.name)
        if record is None:
            record = self._records[source.name] = ModelRecord(source, self._limits.restart)
        record.seen(source)
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

    def _refuse_when_draining(self) -> None:
        if self._draining:
            message = "The server is shutting down and takes no new requests."
            raise Draining(message, retry_after=_RETRY_AFTER_STOP_S)

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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
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
                    logger.info("unloading %s", slot.source.name)
                    slot.stop()
                case SlotState.GONE:
                    del self._slots[slot.source.name]
                case _:
                    pass
        delay_s = self._serve_queue()
        if self._draining and not self._busy():
            self._drained.set()
        return delay_s

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
                logger.warning("%s could not be loaded: %s", slot.source.name, error)
                self._records[slot.source.name].reason = error.message
                self._queue.refuse(slot.source, error)
                slot.stop()

    def _lost(self, slot: ModelSlot, end: WorkerEnd) -> None:
        """Its worker ended by itself. The client has told its requests; their leases hold nothing."""
        now = self._clock()
        ready_for_s = now - slot.worker.ready_at if slot.worker.ready_at is not None else 0.0
        self._records[slot.source.name].ended(end, now, ready_for_s)
        slot.went()
        del self._slots[slot.source.name]

    def _grant(self, slot: ModelSlot) -> None:
        for granted in self._queue.take(slot.source):
            slot.hold()
            granted.set_result(slot)

    def _serve_queue(self) -> float | None:
        """For each model that is waited for: grant, refuse, load, or make room. Returns the shortest back-off."""
        self._wants_room = False
        now = self._clock()
        pauses: list[float] = []
        for source in self._queue.sources():
            if source.name in self._being_removed:
                continue
            slot = self._slots.get(source.name)
            if slot is not None and slot.source == source:
                if slot.usable and not self._wants_room:
                    self._grant(slot)
                continue
            verdict = self._records[source.name].verdict(now)
            patience_s = self._limits.restart.patience_s
            if isinstance(verdict, Refuse) or (isinstance(verdict, Pause) and verdict.delay_s > patience_s):
                self._queue.refuse(source, self._records[source.name].refusal(verdict))
            elif isinstance(verdict, Pause):
                pauses.append(verdict.delay_s)
            elif slot is None and len(self._slots) < self._limits.max_loaded and not self._wants_room:
                self._load(source)
            else:
                self._make_room(slot)
        return min(pauses, default=None)

    def _load(self, source: ModelSource) -> None:
        worker = WorkerProcess(source.name, self._command, self._limits.worker, on_change=self._poke)
        slot = ModelSlot(source, self._resolver, worker, self._poke, self._clock)
        self._slots[source.name] = slot
        logger.info("loading %s", source.name)
        slot.load()

    def _make_room(self, outdated: ModelSlot | None) -> None:
        """Unload a model that nobody holds, or keep new requests from those that are held until one is free.

        outdated: the same model from a file that has changed since; it has to go first.
        """
        if any(slot.state is SlotState.STOPPING for slot in self._slots.values()):
            return
        slots = [outdated] if outdated is not None else list(self._slots.values())
        ready = [slot for slot in slots if slot.state is SlotState.READY]
        victim = choose_victim(Occupant(slot.source.name, slot.leases, slot.last_used) for slot in ready)
        if victim is None:
            self._wants_room = True
            return
        logger.info("unloading %s", victim)
        self._slots[victim].stop()

    def _status(self, record: ModelRecord, now: float) -> ModelStatus:
        slot = self._slots.get(record.source.name)
        verdict = record.verdict(now)
        state: ModelState = "unloaded"
        if slot is not None and slot.state is not SlotState.GONE:
            dying = slot.worker.ending and slot.state is SlotState.READY
            state = "restarting" if dying else slot.state.value
        elif isinstance(verdict, Refuse):
            state = "failed"
        elif isinstance(verdict, Pause):
            state = "restarting"
        pong = slot.worker.pong if slot is not None else None
        return ModelStatus(
            name=record.source.name,
            path=record.source.path,
            state=state,
            pid=slot.worker.pid if slot is not None else None,
            leases=slot.leases if slot is not None else 0,
            waiting=self._queue.waiting(record.source.name),
            load_fraction=slot.worker.load_fraction if slot is not None else 0.0,
            facts=slot.client.facts if slot is not None and slot.client is not None else None,
            stats=pong.stats if pong is not None else EngineStats(),
            loads_total=record.loads_total,
            crashes_total=record.crashes_total,
            stalls_total=record.stalls_total,
            reason=record.reason,
            retry_after_s=verdict.delay_s if isinstance(verdict, Pause | Refuse) else None,
        )


def _summary(facts: ModelFacts) -> str:
    """What was loaded, where it computes, and how much fits."""
    layers = f", {facts.n_gpu_layers} of {facts.n_layer + 1} layers offloaded" if facts.n_gpu_layers else ""
    return (
        f"{facts.description} on {facts.device}{layers}, {facts.threads} threads,"
        f" context {facts.n_ctx} for {facts.parallel} at once, loaded in {facts.load_seconds:.1f} s"
    )
