"""The models that a server offers, for routes and dialects: leases, names and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jan_serve.core.models.model_source import ModelSource
from jan_serve.core.models.model_status import ManagerSnapshot
from jan_serve.generation.ports import ModelLeases


class ServedModels(ModelLeases, Protocol):
    """The part of `supervisor.models.model_manager.ModelManager` that dialects, which never import it, may use."""

    async def models(self) -> Sequence[ModelSource]:
        """Every model that a request may name, loaded or not. May read the disk, off the event loop."""
        ...

    async def unload(self, name: str) -> bool:
        """Unload a model once its requests have finished; False if it was not loaded. Raises ModelNotFound."""
        ...

    def snapshot(self) -> ManagerSnapshot:
        """The models that were requested since the start. Never waits for a worker."""
        ...
