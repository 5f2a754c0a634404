"""What the supervisor needs from the model store, which wiring hands in."""

from __future__ import annotations

from typing import Protocol

import msgspec

from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.memory.footprint import Footprint


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A model file that can be loaded.

    name: canonical; what clients see. path: absolute. revision: differs whenever the file does (size and time of
    change, say); a loaded model whose source has another revision is loaded again. adapters: names of the LoRA adapters
    that it is loaded with.
    """

    name: str
    path: str
    revision: tuple[int, ...] = ()
    adapters: tuple[str, ...] = ()


class Residence(msgspec.Struct, frozen=True, kw_only=True):
    """How a model stays in memory.

    keep_alive_s: seconds that it stays without a request; negative is for ever. pinned: it is not unloaded for another
    model, nor for its age. group: models of one group are not in memory together.
    """

    keep_alive_s: float = 600.0
    pinned: bool = False
    group: str | None = None


class Resolver(Protocol):
    """Names to model files. Methods may block on the disk: they are called in threads, also several at once."""

    def resolve(self, name: str | None) -> ModelSource:
        """The model of this name or alias; None is the default model. Called for every request: reads no GGUF.

        Raises ModelNotFound.
        """
        ...

    def resolve_exact(self, name: str) -> ModelSource:
        """The model that deleting this name means: by a whole name or alias that no other shares. As `resolve`."""
        ...

    def adapter(self, name: str | None) -> str | None:
        """The LoRA adapter that the name means beside the model; asked only for models that have any. As `resolve`."""
        ...

    def engine_settings(self, source: ModelSource) -> EngineSettings:
        """How to load it, from the GGUF header and the configuration. Called once per load; may take a second.

        Raises InvalidModel, ModelNotFound.
        """
        ...

    def footprint(self, source: ModelSource, settings: EngineSettings) -> Footprint:
        """How much memory it will take, loaded with these settings. Reads the header, as `engine_settings`."""
        ...

    def residence(self, source: ModelSource) -> Residence:
        """How it stays in memory, as configured now. Called for every request: reads no GGUF."""
        ...

    def list(self) -> tuple[ModelSource, ...]:
        """Every model that `resolve` knows by its own name, in the order to show them."""
        ...
