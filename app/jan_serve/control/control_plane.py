"""The server's implementation of LMDeploy's control routes: sleep mode, and new weights of served models.

Sleep frees all memory by ending the workers, and rejects requests until the server is woken. LMDeploy's two levels and
two tags (`lmdeploy/serve/openai/api_server.py`): level 1 keeps the prefix cache on disk, level 2 deletes it. A worker
holds both weights and context, so memory is allocated again once both tags are awake.

New weights are collected, merged and tested in a worker of their own, then swapped in between requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.config import Settings
from jan_serve.core.models import ModelFacts, ModelSource
from jan_serve.core.placement import PlacementOptions
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.dialects.lmdeploy.options import LmdeployOptions
from jan_serve.errors import Asleep, InvalidModel, InvalidRequest, JanServeError
from jan_serve.ipc.messages import EmbedRequest, EngineRequest, EngineSettings, LoadModel, RequestCompleted
from jan_serve.store.files import cache_dir
from jan_serve.store.gguf.weight_update import MergedModel, WeightUpdate
from jan_serve.supervisor.kv_transfer.peer_links import TcpPeerLinks
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.models.source_resolver import SourceResolver
from jan_serve.supervisor.models.updated_weights import UpdatedWeights
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.worker_process import WorkerEnd, WorkerProcess
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import manager_limits

logger = logging.getLogger(__name__)

TAGS: Final = frozenset({"weights", "kv_cache"})
MESSAGE: Final = "Engine is sleeping; call POST /wakeup before inference (e.g. tags=weights&tags=kv_cache)."
_SLEEP_DRAIN_S: Final = 0.2
"""Grace period for running requests."""


class Sleeper:
    """Suspends and resumes a model manager. Event loop only; calls during a sleep run after it, in turn."""

    def __init__(self, manager: ModelManager, delete_caches: Callable[[], None]) -> None:
        """delete_caches: deletes the prefix caches on disk; blocks, called in a thread."""
        self._manager = manager
        self._delete_caches = delete_caches
        self._asleep: frozenset[str] = frozenset()
        self._loaded: tuple[str, ...] = ()
        self._lock = asyncio.Lock()

    @property
    def is_sleeping(self) -> bool:
        """Whether requests are rejected: until both tags are awake."""
        return bool(self._asleep)

    async def sleep(self, level: int) -> None:
        """End all workers; running requests have a grace period, then fail with Asleep. Returns when memory is free.
        New requests are rejected at once. It does not wait for the loads of an earlier wake."""
        # Only a sleep waits while it holds the lock, and requests are rejected by then.
        async with self._lock:
            if not self._asleep:
                # With those that an earlier wake has still to load.
                models = self._manager.snapshot().models
                present = (model.name for model in models if model.state in ("ready", "loading"))
                self._loaded = tuple(dict.fromkeys((*self._loaded, *present)))
            self._asleep = TAGS
            await self._manager.suspend(Asleep(MESSAGE, retry_after=None), _SLEEP_DRAIN_S)
            if level > 1:
                await asyncio.to_thread(self._delete_caches)
            logger.info("asleep (level %d)", level)

    async def wake(self, tags: Iterable[str]) -> None:
        """Wake these parts; none means all. The last one reloads the models that were loaded, and waits for them.
        Tags that are awake are ignored. A sleep in progress finishes first."""
        async with self._lock:
            wanted = frozenset(tags)
            unknown = wanted - self._asleep
            if unknown:
                logger.warning("cannot wake what is not asleep: %s", ", ".join(sorted(unknown))[:200])
            was_asleep = self.is_sleeping
            self._asleep = self._asleep - wanted if wanted else frozenset()
            if not was_asleep or self._asleep:
                return
            self._manager.resume()
            loaded = self._loaded
        try:
            await asyncio.gather(*(self._load(name) for name in loaded))
        finally:
            if not self._asleep:
                self._loaded = ()
        if not self._asleep:
            logger.info("awake")

    async def _load(self, name: str) -> None:
        try:
            await self._manager.load(name)
        except JanServeError as error:
            logger.warning("cannot load %s after waking: %s", name, error.message)


_PROMPT = "Hello"


async def try_model(
    name: str, path: str, settings: EngineSettings, command: Sequence[str], limits: WorkerLimits
) -> None:
    """Returns once the file gave a token and its worker is gone. Runs on the CPU from the mapped file, whatever the
    settings, to need little memory beside the loaded models. Raises InvalidModel with the reason,
    InsufficientMemory."""
    changed = asyncio.Event()
    worker = WorkerProcess(name, command, limits, on_change=changed.set)
    small = msgspec.structs.replace(
        settings,
        n_ctx=256,
        parallel=1,
        placement=PlacementOptions(n_gpu_layers=0),
        rpc=(),
        use_mmap=True,
        use_mlock=False,
        cache_sequences=0,
        cache_ram_bytes=0,
        cache_disk_bytes=0,
        cache_dir=None,
    )
    try:
        await worker.start(LoadModel(path=path, settings=small))
        while worker.outcome is None:
            changed.clear()
            await changed.wait()
        match worker.outcome:
            case ModelFacts() as facts:
                client = WorkerEngineClient(name, facts, worker)
                worker.listen(client)
                await _use(client)
            case WorkerEnd() as end:
                raise InvalidModel(f"the updated model could not be loaded: {end}")
            case error:
                raise error
    except OSError as error:
        raise InvalidModel(f"the updated model could not be tried: {error.strerror}") from None
    finally:
        await worker.stop()


async def _use(client: WorkerEngineClient) -> None:
    """Raises InvalidModel if the model computes nothing."""
    try:
        if client.facts.is_embedding_model:
            await client.ask(EmbedRequest(inputs=(_PROMPT,)))
            return
        request = EngineRequest(
            id=client.next_id(),
            prompt=(_PROMPT,),
            sampling=SamplingParams(temperature=0.0),
            stopping=StopConditions(max_tokens=1),
            cache_salt="",
        )
        async with client.opened(request) as inbox:
            while not isinstance(await inbox.get(), RequestCompleted):
                pass
    except JanServeError as error:
        raise InvalidModel(f"the updated model does not work: {error.message}") from None


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
                    changed = msgspec.structs.replace(source, path=str(merged.path))
                    settings = (await asyncio.to_thread(self._sources.needs, changed)).settings
                    await try_model(source.name, str(merged.path), settings, self._command, self._limits)
                    await self._swap(source, model, merged)
                except BaseException as error:
                    self._collected.delete(merged)
                    if not isinstance(error, InvalidModel):
                        raise
                    reason = f"these weights are refused, and the old ones stay: {error.message}"
                    name = "serialized_named_tensors"
                    raise InvalidRequest(f"{name}: {reason}", param=name) from None

    async def close(self) -> None:
        """Delete merged and collected files. No worker may have them open."""
        await asyncio.to_thread(self._collected.close)

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
