"""What management needs of the supervisor and the store, which wiring hands in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from jan_serve.api.models_port import ModelState
from jan_serve.store.library import ModelLibrary


class NamedModel(Protocol):
    """A model by its canonical name; see supervisor.ports.ModelSource."""

    @property
    def name(self) -> str: ...


class ManagedState(ModelState, Protocol):
    """One model that was asked for since the start; see supervisor.snapshot.ModelStatus."""

    @property
    def path(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def load_fraction(self) -> float: ...
    @property
    def retry_after_s(self) -> float | None: ...
    @property
    def taken_bytes(self) -> int: ...
    @property
    def idle_left_s(self) -> float | None: ...
    @property
    def pinned(self) -> bool: ...
    @property
    def group(self) -> str | None: ...


class ManagedSnapshot(Protocol):
    """All of them, as of one moment."""

    @property
    def models(self) -> Sequence[ManagedState]: ...


class ModelControl(Protocol):
    """The model manager; see supervisor.model_manager."""

    def snapshot(self) -> ManagedSnapshot:
        """Never waits for a worker."""
        ...

    async def load(self, name: str | None, keep_alive_s: float | None = None) -> str:
        """Have a model in memory; its canonical name. Cancelling stops the load."""
        ...

    async def unload(self, name: str, *, force: bool = False) -> bool:
        """Take a model out of memory; False where it was not there."""
        ...

    def removing(self, name: str) -> AbstractAsyncContextManager[NamedModel]:
        """Keep a model out of memory while the block deletes its file, and yield it. Raises ModelInUse."""
        ...


@dataclass(frozen=True, slots=True)
class Management:
    """What the routes work on."""

    control: ModelControl
    library: ModelLibrary
