"""What a name in a request means and what a load of that model needs, as wiring says; loads are prepared in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

import msgspec

from jan_serve.core.models import ModelFacts, ModelSource
from jan_serve.errors import JanServeError, shortage
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.model_memory import Footprint, FreeMemory
from jan_serve.supervisor.models.eviction import Retention


class Resolved(msgspec.Struct, frozen=True):
    """The meaning of a name, as configured now. adapter: the LoRA adapter that the name selects."""

    source: ModelSource
    retention: Retention = Retention()
    adapter: str | None = None


class LoadNeeds(msgspec.Struct, frozen=True):
    """What a load needs. free: memory as measured for the load; None if it is not measured."""

    settings: EngineSettings
    footprint: Footprint
    free: FreeMemory | None = None


class SourceResolver(Protocol):
    """Methods may block on the disk: they run in threads, several at once."""

    def resolve(self, name: str | None) -> Resolved:
        """None is the default model. Called for every request: reads no GGUF. Raises ModelNotFound."""
        ...

    def resolve_exact(self, name: str) -> ModelSource:
        """The model that a deletion by this name means: only by a whole, unambiguous name or alias. As `resolve`."""
        ...

    def needs(self, source: ModelSource) -> LoadNeeds:
        """From the GGUF header and the configuration; may take a second. Raises InvalidModel, ModelNotFound."""
        ...

    def loaded(self, source: ModelSource, facts: ModelFacts) -> None:
        """A load of it succeeded, with these facts. Called once per load."""
        ...

    def list(self) -> tuple[ModelSource, ...]:
        """Every model that `resolve` knows by its canonical name, in display order."""
        ...


logger = logging.getLogger(__name__)

GOOD_FOR_S: Final = 5.0
"""Maximum age of a measurement: other programs allocate and free memory too."""

MemoryMeter = Callable[[], FreeMemory]
"""Measures the memory that models may use. Blocks for up to a second."""


class LoadPreparation:
    """Running and finished preparations, by model. Event loop only."""

    def __init__(
        self,
        resolver: SourceResolver,
        meter: MemoryMeter | None,
        on_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """on_change is called when a preparation is done; it must not block. clock: seconds."""
        self._resolver = resolver
        self._meter = meter
        self._on_change = on_change
        self._clock = clock
        self._tasks: dict[ModelSource, asyncio.Task[LoadNeeds | JanServeError]] = {}
        self._done_at: dict[ModelSource, float] = {}

    def result(self, source: ModelSource) -> LoadNeeds | JanServeError | None:
        """None while it runs. The first call starts it, as does a call that finds it too old."""
        task, now = self._tasks.get(source), self._clock()
        # Its age is from its end: a slow preparation would always be too old.
        if task is not None and task.done() and now - self._done_at.get(source, now) >= GOOD_FOR_S:
            task = None
        if task is None:
            work = self._prepare(source)
            task = self._tasks[source] = asyncio.create_task(work, name=f"prepare {source.name}")
            task.add_done_callback(lambda done: self._done(source, done))
        return task.result() if task.done() and not task.cancelled() else None

    def _done(self, source: ModelSource, task: asyncio.Task[LoadNeeds | JanServeError]) -> None:
        if self._tasks.get(source) is task:
            self._done_at[source] = self._clock()
        self._on_change()

    def keep_only(self, sources: Collection[ModelSource]) -> None:
        for source in self._tasks.keys() - set(sources):
            self.forget(source)

    def forget(self, source: ModelSource) -> None:
        """The next `result` prepares it anew."""
        self._done_at.pop(source, None)
        task = self._tasks.pop(source, None)
        if task is not None:
            task.cancel()

    def forget_all(self) -> None:
        self.keep_only(())

    async def _prepare(self, source: ModelSource) -> LoadNeeds | JanServeError:
        try:
            return await asyncio.to_thread(self._look, source)
        except JanServeError as error:
            return error
        except Exception as error:
            if (lacking := shortage(error)) is not None:
                return lacking
            # A bug in the resolver must not leave requests waiting.
            logger.exception("cannot prepare the load of %s", source.name)
            return JanServeError(f"The model `{source.name}` could not be prepared.")

    def _look(self, source: ModelSource) -> LoadNeeds:
        needs = self._resolver.needs(source)
        return needs if self._meter is None else msgspec.structs.replace(needs, free=self._meter())
