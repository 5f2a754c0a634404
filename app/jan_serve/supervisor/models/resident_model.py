"""A model in memory: its worker, its client and its leases, as `LoadedModels` decides; and the status of any model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

import msgspec

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models import ModelFacts, ModelSource, ModelState, ModelStatus
from jan_serve.errors import JanServeError, shortage
from jan_serve.ipc.messages import LoadModel
from jan_serve.store.model_memory import Footprint
from jan_serve.supervisor.models.eviction import MemoryUse, Occupant, ttl_left_s
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.tries import Tries
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.worker_process import WorkerEnd, WorkerProcess


class LoadState(StrEnum):
    """loading → ready → stopping → gone; loading → stopping; any → gone when the worker crashes."""

    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"


class ResidentModel:
    """Lives on the event loop only."""

    def __init__(
        self,
        source: ModelSource,
        history: ModelHistory,
        load: LoadModel,
        footprint: Footprint,
        worker: WorkerProcess,
        on_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.source = source
        self.history = history
        self.state = LoadState.LOADING
        self.worker = worker
        self.client: WorkerEngineClient | None = None
        self.leases = 0
        self.last_used = clock()
        self.ttl_s: float | None = None
        """How long it stays loaded while idle, as the last request that set it wants; None is the configured time."""
        self.trial: Tries | None = None
        """Tries of the request that runs alone, if one does."""
        self.retiring = False
        """It takes no new request, and is unloaded once no request holds it."""
        self.gone = asyncio.Event()
        self.is_reported = False
        self._request = load
        self._footprint = footprint
        self._on_change = on_change
        self._clock = clock
        self._loading: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Ready, and not about to end: it takes requests."""
        return self.state is LoadState.READY and not self.retiring and not self.worker.ending

    @property
    def optional_projector(self) -> str | None:
        """The projector of the load, if the model may be served without it."""
        settings = self._request.settings
        return None if settings.projector_required else settings.projector

    @property
    def memory(self) -> MemoryUse:
        """Its memory now: the estimate, and the prompt cache in RAM as of the last pulse."""
        pong, footprint = self.worker.pong, self._footprint
        saved = pong.stats.cache_ram_bytes if pong is not None else 0
        if self.client is not None:
            use = memory_when_loaded(footprint, self.client.facts)
        else:
            use = MemoryUse(footprint.total, footprint.on_device, unseen=footprint.total)
        return msgspec.structs.replace(use, total=use.total + saved)

    def load(self, on_begun: Callable[[], None]) -> None:
        """Start it; its result is `worker.outcome`. on_begun: called once the worker has the load; returns at once."""
        self._loading = asyncio.create_task(self._load(on_begun), name=f"load {self.source.name}")

    def become_ready(self, facts: ModelFacts) -> None:
        """The load succeeded: route the worker's events to a client."""
        self.client = WorkerEngineClient(self.source.name, facts, self.worker)
        self.state = LoadState.READY
        self.worker.listen(self.client)

    def hold(self) -> None:
        self.leases += 1
        self.last_used = self._clock()

    def release(self) -> None:
        self.leases -= 1
        self.last_used = self._clock()

    def ttl_left_s(self, now: float) -> float | None:
        """How long it may still stay loaded while idle; None is for ever, or while it is not loaded."""
        if self.state is not LoadState.READY:
            return None
        return ttl_left_s(self.history.retention, self.ttl_s, self.last_used, now)

    def occupant(self) -> Occupant:
        """The eviction policy's view. A loading model counts as used, by the requests that wait for it."""
        return Occupant(
            name=self.source.name,
            leases=self.leases + (self.state is LoadState.LOADING),
            last_used=self.last_used,
            memory=self.memory.total,
            memory_on_device=self.memory.on_device,
            pinned=self.history.retention.pinned,
            group=self.history.retention.group,
            leaving=self.state in (LoadState.STOPPING, LoadState.GONE) or (self.retiring and not self.leases),
        )

    def stop(self) -> asyncio.Task[None]:
        """Unload: its memory is free once the state is GONE. A second call returns the same task."""
        if self._stopping is None:
            self.state = LoadState.STOPPING
            self._stopping = asyncio.create_task(self._stop(), name=f"unload {self.source.name}")
        return self._stopping

    async def _load(self, on_begun: Callable[[], None]) -> None:
        try:
            await self.worker.start(self._request)
            on_begun()
        except JanServeError as error:
            # The worker did not get the load: nothing but its watchdog would end it.
            self.worker.outcome = error
        except Exception as error:  # requests must not wait for ever
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            # Out of processes, or no interpreter: counts as a crash, so that back-off applies.
            failed = WorkerEnd(requested=False, status=f"could not be started ({reason})")
            self.worker.outcome = shortage(error) or failed
        self._on_change()

    async def _stop(self) -> None:
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        try:
            await self.worker.stop()
        finally:
            self.mark_gone()
            self._on_change()

    def mark_gone(self) -> None:
        """Call once its worker has ended."""
        self.state = LoadState.GONE
        self.gone.set()


def memory_when_loaded(footprint: Footprint, facts: ModelFacts) -> MemoryUse:
    """The worker's figures as far as it reported them; layers on an accelerator are no longer in the mapped file."""
    if any(part.kind != "cpu" for part in facts.placement):
        weights = max(sum(part.weights for part in facts.placement), footprint.weights)
        # An integrated device has no memory of its own.
        on_device = sum(part.weights + part.cache for part in facts.placement if part.kind in ("gpu", "rpc"))
        unseen = sum(part.weights for part in facts.placement if part.kind == "cpu" and footprint.mapped)
        return MemoryUse(weights + facts.kv_bytes + footprint.working, on_device, unseen)
    offloaded = facts.n_gpu_layers / (facts.n_layer + 1)
    weights = max(facts.size_bytes, footprint.weights)  # the facts omit the draft model
    loaded = weights + facts.kv_bytes
    unseen = int(weights * (1 - offloaded)) if footprint.mapped else 0
    return MemoryUse(loaded + footprint.working, int(loaded * offloaded), unseen)


def model_status(
    history: ModelHistory, resident: ResidentModel | None, waiting: int, now: float
) -> ModelStatus:
    """The status now. resident: None if the model is not in memory. waiting: requests in the queue for it."""
    verdict = history.verdict(now)
    pong = resident.worker.pong if resident is not None else None
    return ModelStatus(
        name=history.source.name,
        path=history.source.path,
        state=_state(history, resident, now),
        pid=resident.worker.pid if resident is not None else None,
        leases=resident.leases if resident is not None else 0,
        waiting=waiting,
        load_fraction=resident.worker.load_fraction if resident is not None else 0.0,
        facts=resident.client.facts if resident is not None and resident.client is not None else None,
        modalities=history.modalities,
        stats=pong.stats if pong is not None else EngineStats(),
        loads_total=history.loads_total,
        crashes_total=history.crashes_total,
        stalls_total=history.stalls_total,
        retries_total=history.trials.retries_total,
        reason=history.reason,
        retry_after_s=verdict.delay_s or None,
        taken_bytes=resident.memory.total if resident is not None else 0,
        ttl_left_s=resident.ttl_left_s(now) if resident is not None else None,
        pinned=history.retention.pinned,
        group=history.retention.group,
        lost_devices=history.lost_devices,
    )


def _state(history: ModelHistory, resident: ResidentModel | None, now: float) -> ModelState:
    if resident is not None and resident.state is not LoadState.GONE:
        dying = resident.worker.ending and resident.state is LoadState.READY
        return "restarting" if dying else resident.state.value
    verdict = history.verdict(now)
    return "failed" if verdict.given_up else "restarting" if verdict.delay_s else "unloaded"
