"""What the HTTP layer needs of the supervisor, which wiring hands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.model_facts import ModelFacts
from jan_serve.generation.ports import ModelLeases


class ModelName(Protocol):
    """A model that can be asked for."""

    @property
    def name(self) -> str:
        """Its canonical name."""
        ...


class ModelState(Protocol):
    """The state of one model that was asked for since the start; see supervisor.snapshot.ModelStatus."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def leases(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def facts(self) -> ModelFacts | None: ...
    @property
    def stats(self) -> EngineStats: ...
    @property
    def loads_total(self) -> int: ...
    @property
    def crashes_total(self) -> int: ...
    @property
    def stalls_total(self) -> int: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def lost_devices(self) -> tuple[str, ...]: ...


class ModelsState(Protocol):
    """All of them, as of one moment."""

    @property
    def models(self) -> Sequence[ModelState]: ...


class Models(ModelLeases, Protocol):
    """Leases, names and states of models."""

    async def models(self) -> Sequence[ModelName]:
        """Every model that can be asked for, loaded or not. May read the disk, off the event loop."""
        ...

    def snapshot(self) -> ModelsState:
        """Never waits for a worker."""
        ...
