"""Builds the parts of the server from the settings, for commands and tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jan_serve.config import ModelBook, Settings, import_folders
from jan_serve.core.request import RenderedChat, RenderRequest
from jan_serve.generation.profiles import Profiles
from jan_serve.helpers.kinds import HEADERS, Compiled, CompileRequest, DecodeMedia
from jan_serve.helpers.pool import HelperPool
from jan_serve.resources import BUILTIN_MODEL, builtin_model, catalogue_file
from jan_serve.store.hub.references import Catalogue
from jan_serve.store.index import ModelIndex
from jan_serve.store.library import ModelLibrary
from jan_serve.store.model_memory import FreeMemory
from jan_serve.store.resolve import ModelResolver
from jan_serve.supervisor.limits import ManagerLimits, WorkerLimits
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.models.source_resolver import SourceResolver
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.wiring.model_sources import configured_names

if TYPE_CHECKING:
    from jan_serve.control.control_plane import ServerControl
    from jan_serve.store.hub.pull import Puller
    from jan_serve.supervisor.workers.spare_worker import SpareWorker


@dataclass(frozen=True)
class ServerParts:
    """profiles: configuration of single models. library: None disables the management routes; control: its own."""

    settings: Settings
    models: ModelManager
    renderer: HelperPool[RenderRequest, RenderedChat]
    compiler: HelperPool[CompileRequest, Compiled]
    decoder: HelperPool[DecodeMedia, bytes]
    profiles: Profiles | None = None
    library: ModelLibrary | None = None
    control: ServerControl | None = None

    @property
    def helpers(self) -> tuple[HelperPool[Any, Any], ...]:
        """The pools that requests use."""
        return self.renderer, self.compiler, self.decoder

    async def close(self) -> None:
        """End every part, the models first. An interrupt that cancels the end of one does not keep the others."""
        async with AsyncExitStack() as closing:
            for pool in self.helpers:
                closing.push_async_callback(pool.close)
            if self.control is not None:
                closing.push_async_callback(self.control.close)
            if self.library is not None:
                closing.push_async_callback(self.library.close)
            # Returns at once after a drain; after a failed start it ends what was started.
            closing.push_async_callback(self.models.shutdown, 0.0)


def build_resolver(settings: Settings, book: ModelBook | None = None) -> ModelResolver:
    """Raises ModelNotFound if the configured default model is missing. book: settings of single models."""
    tables = book or ModelBook(settings)
    builtin = builtin_model()
    return ModelResolver(
        settings.models_dir,
        default=settings.model,
        builtin=(BUILTIN_MODEL, builtin) if builtin is not None else None,
        index=ModelIndex(settings.models_dir),
        names=lambda: configured_names(tables),
        thinks=_thinks,
        can_pull=lambda name: Catalogue.read(catalogue_file()).has(name),
    )


def _thinks(template: str) -> bool:
    # Imported late: most commands look at no template.
    from jan_serve.chat.detect import knows_thoughts

    return knows_thoughts(template)


def build_puller(settings: Settings, free_memory: Callable[[], FreeMemory] | None = None) -> Puller:
    # Imported late: most commands pull nothing, and importing the HTTP client is slow.
    from jan_serve.store.hub.hub_http import HubAccess
    from jan_serve.store.hub.pull import Puller

    token = settings.hf_token.get_secret_value() if settings.hf_token is not None else None
    return Puller(
        settings.models_dir,
        HubAccess(settings.hf_endpoint, token),
        catalogue=Catalogue.read(catalogue_file()),
        free_memory=free_memory,
    )


def build_library(
    resolver: ModelResolver, settings: Settings, free_memory: Callable[[], FreeMemory] | None = None
) -> ModelLibrary:
    return ModelLibrary(
        resolver,
        settings.models_dir,
        lambda: build_puller(settings, free_memory),
        HelperPool(HEADERS),
        free_memory,
        other_programs,
    )


def other_programs() -> dict[str, tuple[Path, ...]]:
    """The models folders of other programs, by the names of FINDERS. Blocks on the disk."""
    from jan_serve.store.imports.finders import lmstudio_folders

    folders = import_folders()
    return {
        "ollama": folders.ollama,
        "lmstudio": lmstudio_folders(folders.lmstudio_home),
        "jan": folders.jan,
        "hf": folders.hf_cache,
    }


def manager_limits(settings: Settings) -> ManagerLimits:
    budget = settings.memory_budget
    return ManagerLimits(
        max_loaded=settings.max_models,
        memory_budget=budget if isinstance(budget, int) else None,
        max_queue=settings.max_queue,
        retry=settings.retry,
        worker=WorkerLimits(
            load_s=settings.load_timeout_s, decode_s=settings.stall_decode_s, sample_s=settings.stall_sample_s
        ),
    )


def build_manager(
    sources: SourceResolver,
    settings: Settings,
    free_memory: Callable[[], FreeMemory] | None,
    renderer: HelperPool[RenderRequest, RenderedChat],
    spare: SpareWorker,
) -> ModelManager:
    """The model manager. The first lease starts a worker.

    free_memory: called in a thread before a load; None disables the memory check. renderer: has a process ready when a
    model is loaded. spare: the first load takes it.
    """
    meter = free_memory if settings.memory_budget != "off" else None
    limits = manager_limits(settings)
    return ModelManager(
        sources, own_command("worker"), limits, meter=meter, on_load=renderer.start_soon, spare=spare
    )
