"""Puts the parts together from the settings. Knows everybody, decides nothing; used by the commands and by tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jan_serve.config import Settings, engine_settings
from jan_serve.ipc.messages import EngineSettings
from jan_serve.resources import BUILTIN_MODEL, builtin_model, catalogue_file
from jan_serve.store.catalogue import Catalogue
from jan_serve.store.entry import ModelEntry
from jan_serve.store.fit import FreeMemory
from jan_serve.store.footprint import Footprint, footprint
from jan_serve.store.index import ModelIndex
from jan_serve.store.library import ModelLibrary
from jan_serve.store.paths import StorePaths
from jan_serve.store.resolve import ModelResolver
from jan_serve.supervisor.limits import ManagerLimits, WorkerLimits
from jan_serve.supervisor.model_manager import ModelManager
from jan_serve.supervisor.ports import ModelSource, Residence
from jan_serve.supervisor.template_renderer import TemplateRendererPool, default_render_command
from jan_serve.supervisor.worker_process import default_worker_command

if TYPE_CHECKING:
    from jan_serve.store.pull import Puller


class ModelSources:
    """The `Resolver` of the supervisor: the store's names and files, with the settings that apply to each."""

    def __init__(self, resolver: ModelResolver, settings: Settings) -> None:
        self._resolver = resolver
        self._settings = settings

    def resolve(self, name: str | None) -> ModelSource:
        """The model of this name; None is the default one. Raises ModelNotFound, InvalidRequest."""
        return _source(self._resolver.resolve(name))

    def engine_settings(self, source: ModelSource) -> EngineSettings:
        """How to load it. Reads the header. Raises InvalidModel, ModelNotFound."""
        model = self._resolver.model_file(Path(source.path), source.name)
        cache_dir = StorePaths(self._settings.data_dir, self._settings.models_dir).cache_dir
        return msgspec.structs.replace(engine_settings(self._settings, model), cache_dir=str(cache_dir))

    def footprint(self, source: ModelSource, settings: EngineSettings) -> Footprint:
        """How much memory it takes with these settings. Reads the header. Raises InvalidModel, ModelNotFound."""
        return footprint(
            self._resolver.model_file(Path(source.path), source.name),
            n_ctx=settings.n_ctx,
            type_k=settings.type_k,
            type_v=settings.type_v,
            n_ubatch=settings.n_ubatch,
            gpu_layers=settings.n_gpu_layers,
            mapped=settings.use_mmap and not settings.use_mlock,
        )

    def residence(self, source: ModelSource) -> Residence:
        """How it stays in memory."""
        return Residence(keep_alive_s=self._settings.ttl_s)

    def list(self) -> tuple[ModelSource, ...]:
        """Every model that can be asked for, in the order to show them."""
        return tuple(_source(entry) for entry in self._resolver.entries())


def _source(entry: ModelEntry) -> ModelSource:
    return ModelSource(name=entry.name, path=str(entry.path), revision=(entry.size_bytes, entry.modified_ns))


def build_resolver(settings: Settings) -> ModelResolver:
    """The models that these settings give access to. Raises ModelNotFound when the configured model is not there."""
    builtin = builtin_model()
    return ModelResolver(
        settings.models_dir,
        default=settings.model,
        builtin=(BUILTIN_MODEL, builtin) if builtin is not None else None,
        index=ModelIndex(settings.models_dir),
    )


def build_puller(settings: Settings, free_memory: Callable[[], FreeMemory] | None = None) -> Puller:
    """Pulling into the models folder from the configured hub. free_memory: see Puller."""
    # Loaded late: most commands pull nothing, and the HTTP client takes a while.
    from jan_serve.store.hub_http import HubAccess
    from jan_serve.store.pull import Puller

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
    """The models folder for management. free_memory: see Puller."""
    return ModelLibrary(resolver, settings.models_dir, lambda: build_puller(settings, free_memory))


def manager_limits(settings: Settings) -> ManagerLimits:
    """The supervisor's limits as configured."""
    return ManagerLimits(
        max_queue=settings.max_queue,
        worker=WorkerLimits(
            load_s=settings.load_timeout_s,
            decode_s=settings.stall_decode_s,
            sample_s=settings.stall_sample_s,
        ),
    )


def build_renderer() -> TemplateRendererPool:
    """The renderer of chat templates. Starts nothing."""
    return TemplateRendererPool(default_render_command())


def build_manager(resolver: ModelResolver, settings: Settings) -> ModelManager:
    """The model manager with real workers. Starts nothing: the first lease does."""
    sources = ModelSources(resolver, settings)
    return ModelManager(sources, default_worker_command(), manager_limits(settings))
