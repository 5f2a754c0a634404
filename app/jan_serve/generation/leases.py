"""What a dialect makes of a model name that is not here, as a ModelLeases around the real one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from jan_serve.errors import ModelNotFound
from jan_serve.generation.ports import EngineClient, ModelLeases


class DefaultingLeases:
    """Serves names that are not known with the default model: clients send names of models that they know elsewhere."""

    def __init__(self, models: ModelLeases) -> None:
        self._models = models

    @contextlib.asynccontextmanager
    async def lease(
        self, name: str | None, keep_alive_s: float | None = None
    ) -> AsyncGenerator[EngineClient]:
        """As ModelLeases.lease; ModelNotFound is raised only when there is no default model either."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(self._models.lease(name, keep_alive_s))
            except ModelNotFound:
                if name is None:
                    raise
                client = await stack.enter_async_context(self._models.lease(None, keep_alive_s))
            yield client
