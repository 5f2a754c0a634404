"""The server's implementation of LMDeploy's control routes.
New weights of a served model are collected, merged and tested, then swapped in between requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from jan_serve.config import Settings
from jan_serve.core.models import ModelSource
from jan_serve.dialects.lmdeploy.options import LmdeployOptions
from jan_serve.errors import InvalidModel, InvalidRequest
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.files import cache_dir
from jan_serve.store.gguf.weight_update import MergedModel, WeightUpdate
from jan_serve.supervisor.kv_transfer.peer_links import TcpPeerLinks
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.models.sleep_mode import Sleeper
from jan_serve.supervisor.models.source_resolver import SourceResolver, UpdatedWeights
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.supervisor.workers.trial_load import try_model
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import manager_limits

logger = logging.getLogger(__name__)


class WeightUpdater:
    """One update at a time. The model keeps its old weights until the new ones are tested."""

    def __init__(
        self,
        sources: SourceResolver,
        updated: UpdatedWeights,
        load: Callable[[str | None], Awaitable[str]],
        collected: WeightUpdate,
        command: Sequence[str],
        limits: WorkerLimits,
        *,
        may_load: Callable[[], bool],
    ) -> None:
        """updated: the newer files of `sources`. load: loads a model by name. may_load: false while the server sleeps;
        the next load uses the new weights.
        """
        self._sources = sources
        self._updated = updated
        self._load = load
        self._collected = collected
        self._command = tuple(command)
        self._limits = limits
        self._may_load = may_load
        self._served: dict[str, MergedModel] = {}
        self._lock = asyncio.Lock()

    async def add(self, model: str | None, parts: Sequence[bytes], *, finished: bool) -> None:
        """Add GGUF files with tensors for a model; None is the default one. Returns after checking them; with
        `finished`, after the model is served with them.

        Raises ModelNotFound; InvalidRequest and StoreError, which discard the update; and as ModelManager.load. The
        model is then unchanged.
        """
        async with self._lock:
            source = (await asyncio.to_thread(self._sources.resolve, model)).source
            for part in parts:
                await asyncio.to_thread(self._collected.add, Path(source.path), part)
            if finished:
                merged = await asyncio.to_thread(self._collected.merge)
                try:
                    settings = await asyncio.to_thread(self._settings, source, merged)
                    await try_model(source.name, str(merged.path), settings, self._command, self._limits)
                    await self._swap(source, model, merged)
                except BaseException as error:
                    self._collected.delete(merged)
                    if isinstance(error, InvalidModel):
                        raise _refused(error) from None
                    raise

    async def close(self) -> None:
        """Delete merged and collected files. No worker may have them open."""
        await asyncio.to_thread(self._collected.close)

    def _settings(self, source: ModelSource, merged: MergedModel) -> EngineSettings:
        return self._sources.needs(msgspec.structs.replace(source, path=str(merged.path))).settings

    async def _swap(self, source: ModelSource, model: str | None, merged: MergedModel) -> None:
        """New requests use the new file. Running requests finish with the old one, which is deleted afterwards."""
        before = self._served.get(source.name)
        undo = await asyncio.to_thread(self._updated.update, source, str(merged.path), merged.number)
        try:
            if self._may_load():
                await self._load(model)
        except BaseException:
            undo()
            raise
        self._served[source.name] = merged
        if before is not None:
            self._collected.delete(before)
        logger.info("%s has new weights: %d tensors", source.name, merged.tensors)


def _refused(error: InvalidModel) -> InvalidRequest:
    return InvalidRequest(
        f"serialized_named_tensors: these weights are refused, and the old ones stay: {error.message}",
        param="serialized_named_tensors",
    )


class ServerControl:
    """dialects.ports.ControlPlane over a model manager."""

    def __init__(self, settings: Settings, manager: ModelManager, sources: ModelSources) -> None:
        """sources: the manager's model sources."""
        caches = cache_dir(settings.data_dir)
        self.links = TcpPeerLinks(settings.host)
        self._sleeper = Sleeper(manager, lambda: delete_states(caches))
        self._weights = WeightUpdater(
            sources,
            sources.updated,
            manager.load,
            WeightUpdate(settings.data_dir / "updated-weights"),
            own_command("worker"),
            manager_limits(settings).worker,
            may_load=lambda: not self._sleeper.is_sleeping,
        )
        self.sleep, self.wake = self._sleeper.sleep, self._sleeper.wake
        self.update_weights = self._weights.add
        options = settings.part(LmdeployOptions)
        self.may_abort = options.enable_abort_handling
        self.may_terminate = options.allow_terminate_by_client

    @property
    def is_sleeping(self) -> bool:
        return self._sleeper.is_sleeping

    def terminate(self) -> None:
        """Drain and stop, as on SIGTERM."""
        signal.raise_signal(signal.SIGTERM)

    async def close(self) -> None:
        """Close the links with other servers and delete updated weights. Call it after the server has stopped."""
        await self.links.close()
        await self._weights.close()


def delete_states(folder: Path) -> None:
    """Delete the prompt states of workers on disk. Blocks. Files in use by another server may remain."""
    for pattern in ("*/*.state", "*/*.partial"):
        for file in folder.glob(pattern):
            with contextlib.suppress(OSError):
                file.unlink()
