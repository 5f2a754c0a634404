"""A SourceResolver over another one that replaces the files of models whose weights were updated."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

import msgspec

from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.models.model_source import ModelSource
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.memory.footprint import Footprint
from jan_serve.supervisor.models.source_resolver import Retention, SourceResolver


class _Updated(NamedTuple):
    """stamp: of the model's own file at the time of the update."""

    stamp: tuple[int, int] | None
    path: str
    number: int


class UpdatedSources:
    """An update holds until `restore`, or until the model's own file changes. Thread-safe."""

    def __init__(self, resolver: SourceResolver) -> None:
        self._resolver = resolver
        self._lock = threading.Lock()
        self._updated: dict[str, _Updated] = {}

    def update(self, source: ModelSource, path: str, number: int) -> None:
        """Serve this model, as `original` resolved it, from that file. number: unique among updates."""
        with self._lock:
            self._updated[source.name] = _Updated(_stamp(source), path, number)

    def restore(self, name: str, path: str | None, number: int) -> None:
        """Undo an update: serve the model from that file, or from its own."""
        with self._lock:
            known = self._updated.get(name)
            if known is None:
                return
            if path is None:
                del self._updated[name]
            else:
                self._updated[name] = known._replace(path=path, number=number)

    def original(self, name: str | None) -> ModelSource:
        """The model's own file. Raises as `resolve`."""
        return self._resolver.resolve(name)

    def resolve(self, name: str | None) -> ModelSource:
        return self._current(self._resolver.resolve(name))

    def resolve_exact(self, name: str) -> ModelSource:
        return self._current(self._resolver.resolve_exact(name))

    def adapter(self, name: str | None) -> str | None:
        return self._resolver.adapter(name)

    def engine_settings(self, source: ModelSource) -> EngineSettings:
        return self._resolver.engine_settings(source)

    def loaded(self, source: ModelSource, facts: ModelFacts) -> None:
        self._resolver.loaded(source, facts)

    def footprint(self, source: ModelSource, settings: EngineSettings) -> Footprint:
        return self._resolver.footprint(source, settings)

    def retention(self, source: ModelSource) -> Retention:
        return self._resolver.retention(source)

    def list(self) -> tuple[ModelSource, ...]:
        return tuple(self._current(source) for source in self._resolver.list())

    def _current(self, source: ModelSource) -> ModelSource:
        with self._lock:
            updated = self._updated.get(source.name)
            if updated is None:
                return source
            if updated.stamp != _stamp(source):
                del self._updated[source.name]  # the model's own file was replaced since: it is newer
                return source
        return msgspec.structs.replace(source, path=updated.path, revision=(*source.revision, updated.number))


def _stamp(source: ModelSource) -> tuple[int, int] | None:
    try:
        status = os.stat(source.path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
