"""The models on disk, for dialects that show and manage them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from jan_serve.core.listed_model import ListedModel
from jan_serve.core.model_details import ModelDetails
from jan_serve.core.pull_step import PullStep


class ModelStore(Protocol):
    """The part of management that dialects, which never import it, may use. No method blocks the event loop."""

    async def models(self) -> Sequence[ListedModel]:
        """All of them, within milliseconds; never waits for a load."""
        ...

    async def details(self, name: str) -> ModelDetails:
        """Reads the header. Raises ModelNotFound, InvalidRequest, InvalidModel."""
        ...

    def pull(self, name: str) -> AsyncGenerator[PullStep]:
        """Download a model from the hub; the last step is done. Closing it stops the transfer and keeps what came.

        Raises InvalidRequest, and as ModelLibrary.plan and ModelLibrary.pull.
        """
        ...

    async def delete(self, name: str) -> None:
        """Raises ModelNotFound, InvalidRequest, ModelInUse, StoreError."""
        ...
