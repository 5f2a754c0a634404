"""A ModelLeases that serves unknown names of models with the default model."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from jan_serve.errors import ModelNotFound
from jan_serve.generation.ports import EngineClient, ModelLeases


class DefaultingLeases:
    """For clients that send the names of other servers' models."""

    def __init__(self, models: ModelLeases) -> None:
        self._models = models

    @contextlib.asynccontextmanager
    async def lease(
        self, name: str | None, keep_alive_s: float | None = None
    ) -> AsyncGenerator[EngineClient]:
        """As ModelLeases.lease; raises ModelNotFound only if there is no default model either."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(self._models.lease(name, keep_alive_s))
            except ModelNotFound:
                if name is None:
                    raise
                client = await stack.enter_async_context(self._models.lease(None, keep_alive_s))
            yield client
