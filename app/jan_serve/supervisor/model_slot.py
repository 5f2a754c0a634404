"""One model in memory, on its way in or on its way out: its worker, its client, and who holds it.

The model manager owns the slots and alone decides; a slot only carries out. It never restarts itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum

from jan_serve.errors import JanServeError
from jan_serve.ipc.messages import LoadModel, ModelFacts
from jan_serve.supervisor.engine_client import WorkerEngineClient
from jan_serve.supervisor.ports import ModelSource, Resolver
from jan_serve.supervisor.worker_process import LoadOutcome, WorkerEnd, WorkerProcess

logger = logging.getLogger(__name__)


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
        resolver: Resolver,
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
        self.retiring = False
        """No new request gets it, and it goes once nobody holds it."""
        self.gone = asyncio.Event()
        """Set when its memory is free."""
        self._resolver = resolver
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

    def load(self) -> None:
        """Start to load. `outcome` says how it went."""
        self._loading = asyncio.create_task(self._load(), name=f"load {self.source.name}")

    def become_ready(self, facts: ModelFacts) -> WorkerEngineClient:
        """The load succeeded: route the worker's events to a client."""
        self.client = WorkerEngineClient(self.source.name, facts, self.worker)
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

    def stop(self) -> asyncio.Task[None]:
        """Unload: the memory is free once the state is GONE. The second call returns the same task."""
        if self._stopping is None:
            self.state = SlotState.STOPPING
            self._stopping = asyncio.create_task(self._stop(), name=f"unload {self.source.name}")
        return self._stopping

    async def _load(self) -> None:
        try:
            settings = await asyncio.to_thread(self._resolver.engine_settings, self.source)
            await self.worker.start(LoadModel(path=self.source.path, settings=settings))
        except JanServeError as error:
            self._early_outcome = error
        except OSError as error:
            # No processes or descriptors left, or no interpreter. Counts as a crash: it is not tried in a loop.
            self._early_outcome = WorkerEnd(
                requested=False, status=f"could not be started ({error.strerror})"
            )
        except Exception:
            # A bug in the resolver must not leave the requests waiting.
            logger.exception("the settings of %s could not be made", self.source.name)
            self._early_outcome = JanServeError(f"The model `{self.source.name}` could not be prepared.")
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
