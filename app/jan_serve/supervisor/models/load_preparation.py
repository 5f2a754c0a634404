"""Inputs of a load decision: settings and size of the model, and free memory. Reads and measures in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from jan_serve.core.models.model_source import ModelSource
from jan_serve.errors import JanServeError
from jan_serve.store.memory.free_memory import FreeMemory
from jan_serve.supervisor.models.source_resolver import LoadNeeds, SourceResolver

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
        task = self._tasks.get(source)
        if task is not None and task.done() and self._age(source) >= GOOD_FOR_S:
            task = None
        if task is None:
            task = self._tasks[source] = asyncio.create_task(
                self._prepare(source), name=f"prepare {source.name}"
            )
            task.add_done_callback(lambda done: self._done(source, done))
        return task.result() if task.done() and not task.cancelled() else None

    def _age(self, source: ModelSource) -> float:
        """Seconds since its end, not its start: a slow preparation would always be too old."""
        now = self._clock()
        return now - self._done_at.get(source, now)

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
        except Exception:
            # A bug in the resolver must not leave requests waiting.
            logger.exception("cannot prepare the load of %s", source.name)
            return JanServeError(f"The model `{source.name}` could not be prepared.")

    def _look(self, source: ModelSource) -> LoadNeeds:
        needs = self._resolver.needs(source)
        return needs if self._meter is None else msgspec.structs.replace(needs, free=self._meter())
