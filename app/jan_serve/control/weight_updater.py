"""Replaces the weights of a model that is being served: collected, merged, tried, and swapped in between requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from jan_serve.errors import InvalidModel, InvalidRequest, JanServeError
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.gguf.weight_update import MergedModel, WeightUpdate
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_source import ModelSource
from jan_serve.supervisor.models.updated_sources import UpdatedSources
from jan_serve.supervisor.workers.trial_load import try_model

logger = logging.getLogger(__name__)


class WeightUpdater:
    """One update at a time. The model goes on with its old weights until the new ones have been tried."""

    def __init__(
        self,
        sources: UpdatedSources,
        load: Callable[[str | None], Awaitable[str]],
        collected: WeightUpdate,
        command: Sequence[str],
        limits: WorkerLimits,
        *,
        may_load: Callable[[], bool],
    ) -> None:
        """may_load: whether models are loaded now; while they are not, the next load takes the new weights."""
        self._sources = sources
        self._load = load
        self._collected = collected
        self._command = tuple(command)
        self._limits = limits
        self._may_load = may_load
        self._served: dict[str, MergedModel] = {}
        self._lock = asyncio.Lock()

    async def add(self, model: str | None, parts: Sequence[bytes], *, finished: bool) -> None:
        """Take GGUF files with tensors for a model; None is the default one. Returns once they are checked, and with
        `finished` once the model is served with them.

        Raises ModelNotFound, InvalidRequest, StoreError: nothing is collected then, and the model is as it was.
        """
        async with self._lock:
            source = await asyncio.to_thread(self._sources.resolve, model)
            for part in parts:
                await asyncio.to_thread(self._collected.add, Path(source.path), part)
            if finished:
                merged = await asyncio.to_thread(self._collected.merge)
                try:
                    await self._try(source, merged)
                    await self._swap(source, model, merged)
                except BaseException:
                    self._collected.delete(merged)
                    raise

    async def close(self) -> None:
        """Delete what was merged and collected. No worker has it open any more."""
        await asyncio.to_thread(self._collected.close)

    async def _try(self, source: ModelSource, merged: MergedModel) -> None:
        try:
            settings = await asyncio.to_thread(self._settings, source, merged)
            await try_model(source.name, str(merged.path), settings, self._command, self._limits)
        except InvalidModel as error:
            raise _refused(error) from None

    def _settings(self, source: ModelSource, merged: MergedModel) -> EngineSettings:
        return self._sources.engine_settings(msgspec.structs.replace(source, path=str(merged.path)))

    async def _swap(self, source: ModelSource, model: str | None, merged: MergedModel) -> None:
        """From now on requests mean the new file. Those that run end with the old one, which then goes."""
        original = await asyncio.to_thread(self._sources.original, model)
        before = self._served.get(source.name)
        self._sources.update(original, str(merged.path), merged.number)
        try:
            if self._may_load():
                await self._load(model)
        except JanServeError as error:
            if before is None:
                self._sources.restore(source.name, None, 0)
            else:
                self._sources.restore(source.name, str(before.path), before.number)
            raise _refused(error) from None
        self._served[source.name] = merged
        if before is not None:
            self._collected.delete(before)
        logger.info("%s has new weights: %d tensors", source.name, merged.tensors)


def _refused(error: JanServeError) -> InvalidRequest:
    return InvalidRequest(
        f"serialized_named_tensors: these weights are refused, and the old ones stay: {error.message}",
        param="serialized_named_tensors",
    )
