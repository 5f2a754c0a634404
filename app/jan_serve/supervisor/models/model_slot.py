"""One model in memory, on its way in or on its way out: its worker, its client, and who holds it.

The model manager owns the slots and alone decides; a slot only carries out. It never restarts itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from jan_serve.core.model_facts import ModelFacts
from jan_serve.ipc.messages import LoadModel
from jan_serve.store.memory.footprint import Footprint
from jan_serve.supervisor.models.eviction import Occupant, Taken
from jan_serve.supervisor.models.load_preparation import Prepared
from jan_serve.supervisor.models.model_source import ModelSource, Residence
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.worker_process import LoadOutcome, WorkerEnd, WorkerProcess


class SlotState(StrEnum):
    """loading → ready → stopping → gone; loading → stopping; any → gone when the worker ends by itself."""

    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"


class ModelSlot:
    """A place in memory that one model takes."""

    def __init__(
        self,
        source: ModelSource,
        prepared: Prepared,
        worker: WorkerProcess,
        on_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.source = source
        self.state = SlotState.LOADING
        self.worker = worker
        self.client: WorkerEngineClient | None = None
        self.leases = 0
        self.last_used = clock()
        self.keep_alive_s: float | None = None
        """How long it stays idle, if a request said so; the last one that did counts."""
        self._taken = taken_while_loading(prepared.footprint)
        self.retiring = False
        """No new request gets it, and it goes once nobody holds it."""
        self.gone = asyncio.Event()
        """Set when its memory is free."""
        self._prepared = prepared
        self._on_change = on_change
        self._clock = clock
        self._early_outcome: LoadOutcome | None = None
        self._loading: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def outcome(self) -> LoadOutcome | None:
        """What the load came to; None while it goes on."""
        return self._early_outcome or self.worker.outcome

    @property
    def usable(self) -> bool:
        """Requests may be sent: ready, and not about to end."""
        return self.state is SlotState.READY and not self.retiring and not self.worker.ending

    @property
    def taken(self) -> Taken:
        """Memory that it takes now: by estimate, and prompts that left its KV cache as last told."""
        pong = self.worker.pong
        saved = pong.stats.cache_ram_bytes if pong is not None else 0
        return replace(self._taken, total=self._taken.total + saved)

    def load(self) -> None:
        """Start to load. `outcome` says how it went."""
        self._loading = asyncio.create_task(self._load(), name=f"load {self.source.name}")

    def become_ready(self, facts: ModelFacts) -> WorkerEngineClient:
        """The load succeeded: route the worker's events to a client."""
        self.client = WorkerEngineClient(self.source.name, facts, self.worker)
        self._taken = taken_when_loaded(self._prepared.footprint, facts)
        self.state = SlotState.READY
        self.worker.listen(self.client)
        return self.client

    def hold(self) -> None:
        """One more request uses it."""
        self.leases += 1
        self.last_used = self._clock()

    def release(self) -> None:
        """One request less uses it."""
        self.leases -= 1
        self.last_used = self._clock()

    def idle_left_s(self, residence: Residence, now: float) -> float | None:
        """For how long it may stay without a request, from now; None is for ever, or while it is not loaded."""
        keep_alive_s = self.keep_alive_s
        if keep_alive_s is None:
            keep_alive_s = -1.0 if residence.pinned else residence.keep_alive_s
        if self.state is not SlotState.READY or keep_alive_s < 0:
            return None
        return max(0.0, self.last_used + keep_alive_s - now)

    def occupant(self, residence: Residence) -> Occupant:
        """As the decision who may be in memory sees it. A load under way is in use by those who wait for it."""
        return Occupant(
            name=self.source.name,
            leases=self.leases + (self.state is SlotState.LOADING),
            last_used=self.last_used,
            takes=self.taken.total,
            takes_on_device=self.taken.on_device,
            pinned=residence.pinned,
            group=residence.group,
            leaving=self.state in (SlotState.STOPPING, SlotState.GONE) or (self.retiring and not self.leases),
        )

    def stop(self) -> asyncio.Task[None]:
        """Unload: the memory is free once the state is GONE. The second call returns the same task."""
        if self._stopping is None:
            self.state = SlotState.STOPPING
            self._stopping = asyncio.create_task(self._stop(), name=f"unload {self.source.name}")
        return self._stopping

    async def _load(self) -> None:
        try:
            await self.worker.start(LoadModel(path=self.source.path, settings=self._prepared.settings))
        except OSError as error:
            # No processes or descriptors left, or no interpreter. Counts as a crash: it is not tried in a loop.
            self._early_outcome = WorkerEnd(
                requested=False, status=f"could not be started ({error.strerror})"
            )
        self._on_change()

    async def _stop(self) -> None:
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        await self.worker.stop()
        self.went()
        self._on_change()

    def went(self) -> None:
        """Its worker has ended, by itself or because it was told to."""
        self.state = SlotState.GONE
        self.gone.set()


def taken_while_loading(footprint: Footprint) -> Taken:
    """All of it is still to come, as estimated."""
    return Taken(footprint.total, footprint.on_device, footprint.total)


def taken_when_loaded(footprint: Footprint, facts: ModelFacts) -> Taken:
    """What the worker said where it did; layers on an accelerator have left the mapped file."""
    there = facts.n_gpu_layers / (facts.n_layer + 1)
    weights = max(facts.size_bytes, footprint.weights)  # it says nothing of a draft model's
    loaded = weights + facts.kv_bytes
    unseen = int(weights * (1 - there)) if footprint.mapped else 0
    return Taken(loaded + footprint.working, int(loaded * there), unseen)
