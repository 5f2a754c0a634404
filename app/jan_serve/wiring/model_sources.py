"""Models for the supervisor and generation: names and files from the store, with their settings."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from jan_serve.config import ModelBook, ModelOptions, ModelSettings, Settings, engine_settings
from jan_serve.config.model_settings import LIVE_OPTIONS
from jan_serve.core.messages import Message
from jan_serve.core.models import ModelFacts, ModelSource, Variant
from jan_serve.errors import InvalidModel, JanServeError
from jan_serve.generation.profiles import ModelProfile, ProfileOf, TemplateOverride
from jan_serve.ipc.messages import AdapterFile, EngineSettings
from jan_serve.store.files import cache_dir, file_stamp, user_path
from jan_serve.store.gguf.header_checks import check_adapter
from jan_serve.store.gguf.model_file import read_projector
from jan_serve.store.index import ModelEntry
from jan_serve.store.model_memory import Footprint, footprint
from jan_serve.store.model_names import NO_PROJECTOR, ConfiguredNames
from jan_serve.store.resolve import ModelResolver
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.supervisor.models.source_resolver import LoadNeeds, Resolved
from jan_serve.supervisor.models.updated_weights import UpdatedWeights
from jan_serve.wiring.user_files import TemplateFiles

logger = logging.getLogger(__name__)


class ModelSources:
    """The `SourceResolver` of the supervisor and the model profiles of generation. Thread-safe."""

    def __init__(self, resolver: ModelResolver, settings: Settings, book: ModelBook | None = None) -> None:
        """resolver: made with `configured_names(book)`.

        Raises SettingsError for a template that cannot be read.
        """
        self.updated = UpdatedWeights()
        self._resolver = resolver
        self._cache_dir = cache_dir(settings.data_dir)
        self._rpc = settings.rpc
        self._book = book or ModelBook(settings)
        self._templates = TemplateFiles()
        for table in self._book.tables().values():
            if table.template is not None:
                self._templates.get(table.template)  # fail at start rather than at a request
        self._lock = threading.Lock()
        self._entries: dict[str, ModelEntry] = {}
        """Each resolved model: every request resolves its model first."""
        self._common = ModelSettings(options=self._book.common())
        self._defaults: dict[str | None, tuple[ModelSettings, dict[str, Any]]] = {}
        """Defaults of requests by table, with the settings that they are from."""

    def resolve(self, name: str | None) -> Resolved:
        """The model of this name; None is the default one. Raises ModelNotFound, InvalidRequest, AdapterNotFound."""
        entry, adapter = self._resolver.resolve_with_adapter(name)
        settings = self._settings(entry.table, self._book.tables())
        retention = Retention(ttl_s=settings.options.ttl_s, pinned=settings.pin, group=settings.group)
        return Resolved(self._source(entry), retention, adapter)

    def resolve_exact(self, name: str) -> ModelSource:
        """The model to delete, see `model_names.deletion_matches`. Raises ModelNotFound, InvalidRequest."""
        return self._source(self._resolver.resolve_exact(name))

    def needs(self, source: ModelSource) -> LoadNeeds:
        """Reads the headers of the model and its adapters. Raises InvalidModel, ModelNotFound."""
        settings = self._engine_settings(source)
        return LoadNeeds(settings, self._needed_memory(source, settings))

    def _engine_settings(self, source: ModelSource) -> EngineSettings:
        model = self._resolver.model_file(Path(source.path), source.name)
        chosen = self.model_settings(source.name)
        for each in chosen.lora:
            check_adapter(each.file, each.name, model.architecture)
        adapters = [AdapterFile(name=own.name, path=str(own.file), scale=own.scale) for own in chosen.lora]
        entry = self._entry(source.name)
        for name, path in entry.variant_adapters if entry is not None else ():
            check_adapter(path, name, model.architecture)
            adapters.append(AdapterFile(name=name, path=str(path), scale=1.0))
        return msgspec.structs.replace(
            engine_settings(chosen.options, model),
            adapters=tuple(adapters),
            cache_dir=str(self._cache_dir),
            rpc=self._rpc,
            draft_path=self._draft_path(chosen.options.draft_model),
            projector=self._checked_projector(source, chosen.projector),
            projector_required=chosen.projector is not None,
        )

    def _checked_projector(self, source: ModelSource, configured: str | None) -> str | None:
        """Raises InvalidModel if the configured file is not the model's projector."""
        if configured not in (None, NO_PROJECTOR) and source.projector is None:
            width = self._resolver.model_file(Path(source.path), source.name).n_embd
            found = read_projector(Path(configured))
            raise InvalidModel(
                f"{found.path.name} is a projector for models of width {found.width}; {source.name} has {width}"
            )
        return source.projector

    def loaded(self, source: ModelSource, facts: ModelFacts) -> None:
        """Log why the model is served for text only, if it has a projector; lists say so from then on.

        A model that writes text becomes the one that was used last.
        """
        entry = self._entry(source.name)
        if entry is not None and not facts.is_embedding_model:
            self._resolver.note_use(entry)
        fault = facts.projector_fault
        if fault:
            logger.warning("%s is served for text only: %s", source.name, fault)
        if source.projector is not None:
            self._resolver.note_projector(Path(source.projector), fault)
            return
        if entry is None or not entry.projectors:
            return
        for each in self._resolver.unfitting_projectors(entry, facts.n_embd):
            why = f"{each.path.name} is for models of the width {each.width}, and this one has {facts.n_embd}"
            logger.warning("%s is served for text only: %s", source.name, why)

    def _draft_path(self, name: str | None) -> str | None:
        """name: a model of the store, or a file. Raises InvalidModel, ModelNotFound."""
        if name is None:
            return None
        file = user_path(name)
        path = file.resolve() if os.path.isfile(file) else self._resolver.resolve(name).path
        self._resolver.model_file(path, name)
        return str(path)

    def _needed_memory(self, source: ModelSource, settings: EngineSettings) -> Footprint:
        model = self._footprint(Path(source.path), source.name, settings)
        if settings.draft_path is not None:
            draft = self._footprint(Path(settings.draft_path), settings.draft_path, settings)
            model = msgspec.structs.replace(
                model,
                weights=model.weights + draft.weights,
                context=model.context + draft.context,
                least_context=model.least_context + draft.least_context,
                on_device=model.on_device + draft.on_device,
            )
        stamps = [file_stamp(Path(adapter.path)) for adapter in settings.adapters]
        more = sum(size for _, size in filter(None, stamps))
        if settings.projector is not None:
            more += read_projector(Path(settings.projector)).memory_bytes
        return msgspec.structs.replace(model, working=model.working + more)

    def _footprint(self, path: Path, name: str, settings: EngineSettings) -> Footprint:
        return footprint(
            self._resolver.model_file(path, name),
            n_ctx=settings.n_ctx,
            type_k=settings.type_k,
            type_v=settings.type_v,
            n_ubatch=settings.n_ubatch,
            gpu_layers=settings.placement.n_gpu_layers,
            mapped=settings.use_mmap and not settings.use_mlock,
            flash_attn=settings.flash_attn != "off",
        )

    def list(self) -> tuple[ModelSource, ...]:
        """All models, in display order."""
        return tuple(self._source(entry) for entry in self._resolver.entries())

    def model_settings(self, name: str) -> ModelSettings:
        """The current settings of a model by its canonical name."""
        return self._table_of(name, self._book.tables())[1]

    def _table_of(self, name: str, tables: Mapping[str, ModelSettings]) -> tuple[str | None, ModelSettings]:
        entry = self._entry(name)
        if entry is None and tables:
            entries = {each.name: each for each in self._resolver.entries()}
            with self._lock:
                self._entries = entries | self._entries
            entry = entries.get(name)
        table = entry.table if entry is not None else None
        return table, self._settings(table, tables)

    def _entry(self, name: str) -> ModelEntry | None:
        with self._lock:
            return self._entries.get(name)

    def profiles(self) -> ProfileOf:
        """The defaults for requests, as configured now. Looks at each file once, for all models."""
        tables = self._book.tables()
        template_of = functools.cache(self._templates.get)
        variant_of = self._resolver.variants.finder()

        def profile(model: str, requested: str | None) -> ModelProfile:
            table, settings = self._table_of(model, tables)
            template = None if settings.template is None else template_of(settings.template)
            defaults = self._defaults.get(table)
            if defaults is None or defaults[0] is not settings:
                defaults = self._defaults[table] = settings, settings.sampling.model_dump(exclude_none=True)
            stop_loops = settings.options.stop_loops
            found = ModelProfile(template=template, defaults=defaults[1], stop_loops=stop_loops)
            variant = variant_of(requested) if requested is not None else None
            return found if variant is None or variant.base != model else _of_variant(found, variant)

        return profile

    def _settings(self, table: str | None, tables: Mapping[str, ModelSettings]) -> ModelSettings:
        if table is not None and table in tables:
            return tables[table]
        return self._common

    def _source(self, entry: ModelEntry) -> ModelSource:
        with self._lock:
            self._entries[entry.name] = entry
        try:
            found = self._resolver.projector(entry)
        except JanServeError:
            found = None  # the load says what is wrong with the model
        projector = found.path if found is not None else None
        settings = self._settings(entry.table, self._book.tables())
        digest = _load_digest(settings, projector, entry.variant_adapters)
        own = ModelSource(
            name=entry.name,
            path=str(entry.path),
            revision=(entry.size_bytes, entry.modified_ns, digest),
            projector=str(projector) if projector is not None else None,
        )
        return self.updated.current(own)


def _of_variant(profile: ModelProfile, variant: Variant) -> ModelProfile:
    own = TemplateOverride(variant.name, variant.template) if variant.template is not None else None
    return ModelProfile(
        template=own or profile.template,
        defaults={**profile.defaults, **_values(variant.defaults)},
        stop_loops=profile.stop_loops,
        system=variant.system,
        messages=tuple(Message(role=each.role, content=each.content) for each in variant.messages),
    )


def _values(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples of StopConditions."""
    return {
        name: tuple(cast(list[Any], value)) if isinstance(value, list) else value
        for name, value in defaults.items()
    }


def configured_names(book: ModelBook) -> Mapping[str, ConfiguredNames]:
    """The currently configured names, for `ModelResolver`."""
    return {
        name: ConfiguredNames(
            table.aliases,
            tuple(adapter.name for adapter in table.lora),
            tuple(adapter.file for adapter in table.lora),
            table.projector,
            has_template=table.template is not None,
        )
        for name, table in book.tables().items()
    }


def _load_digest(
    settings: ModelSettings, projector: Path | None, variant_adapters: Sequence[tuple[str, Path]]
) -> int:
    """Changes if the model must be reloaded: with its load options, its adapters, its projector or their files."""
    names = sorted(ModelOptions.model_fields.keys() - LIVE_OPTIONS)
    options = [(name, getattr(settings.options, name)) for name in names]
    adapters = [(each.name, each.scale, str(each.file), file_stamp(each.file)) for each in settings.lora]
    adapters += [(name, 1.0, str(path), file_stamp(path)) for name, path in variant_adapters]
    sight = (str(projector), file_stamp(projector)) if projector is not None else None
    digest = hashlib.blake2b(repr((options, adapters, sight)).encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
