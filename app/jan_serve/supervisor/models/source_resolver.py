"""What a name in a request means, and what a load of that model needs; wiring implements it over the store."""

from __future__ import annotations

from typing import Protocol

import msgspec

from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.models.model_source import ModelSource
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.memory.footprint import Footprint
from jan_serve.store.memory.free_memory import FreeMemory


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long a model stays in memory.

    keep_alive_s: without a request; negative is for ever. pinned: never evicted, nor unloaded when idle. group: models
    of one group are never in memory together.
    """

    keep_alive_s: float = 600.0
    pinned: bool = False
    group: str | None = None


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
        """The model of this name or alias; None is the default model. Called once for every request: reads no GGUF.

        Raises ModelNotFound.
        """
        ...

    def resolve_exact(self, name: str) -> ModelSource:
        """The model that a deletion by this name means: only by a whole, unambiguous name or alias. As `resolve`."""
        ...

    def needs(self, source: ModelSource) -> LoadNeeds:
        """Settings and memory, from the GGUF header and the configuration. Called for every load; may take a second.

        Raises InvalidModel, ModelNotFound.
        """
        ...

    def loaded(self, source: ModelSource, facts: ModelFacts) -> None:
        """A load of it succeeded, with these facts. Called once per load."""
        ...

    def list(self) -> tuple[ModelSource, ...]:
        """Every model that `resolve` knows by its canonical name, in display order."""
        ...
