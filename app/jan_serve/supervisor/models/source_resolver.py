"""Model files by name, with their load settings, size and retention; wiring implements it over the store."""

from __future__ import annotations

from typing import Protocol

import msgspec

from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.models.model_source import ModelSource
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.memory.footprint import Footprint


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long a model stays in memory.

    keep_alive_s: without a request; negative is for ever. pinned: never evicted, nor unloaded when idle. group: models
    of one group are never in memory together.
    """

    keep_alive_s: float = 600.0
    pinned: bool = False
    group: str | None = None


class SourceResolver(Protocol):
    """Methods may block on the disk: they run in threads, several at once."""

    def resolve(self, name: str | None) -> ModelSource:
        """The model of this name or alias; None is the default model. Called for every request: reads no GGUF.

        Raises ModelNotFound.
        """
        ...

    def resolve_exact(self, name: str) -> ModelSource:
        """The model that a deletion by this name means: only by a whole, unambiguous name or alias. As `resolve`."""
        ...

    def adapter(self, name: str | None) -> str | None:
        """The LoRA adapter that the name selects; called only for models that have adapters. As `resolve`."""
        ...

    def engine_settings(self, source: ModelSource) -> EngineSettings:
        """Load settings, from the GGUF header and the configuration. Called once per load; may take a second.

        Raises InvalidModel, ModelNotFound.
        """
        ...

    def loaded(self, source: ModelSource, facts: ModelFacts) -> None:
        """A load of it succeeded, with these facts. Called once per load."""
        ...

    def footprint(self, source: ModelSource, settings: EngineSettings) -> Footprint:
        """Memory that the model needs with these settings. Reads the header, as `engine_settings`."""
        ...

    def retention(self, source: ModelSource) -> Retention:
        """As configured now. Called for every request: reads no GGUF."""
        ...

    def list(self) -> tuple[ModelSource, ...]:
        """Every model that `resolve` knows by its canonical name, in display order."""
        ...
