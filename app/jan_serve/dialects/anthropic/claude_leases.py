"""Models by the names of Claude models."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from jan_serve.dialects.anthropic.claude_names import names_for
from jan_serve.errors import ModelNotFound
from jan_serve.generation.ports import EngineClient, ModelLeases


class ClaudeLeases:
    """A ModelLeases that looks up Claude's names by family."""

    def __init__(self, models: ModelLeases) -> None:
        self._models = models

    @contextlib.asynccontextmanager
    async def lease(
        self, name: str | None, keep_alive_s: float | None = None
    ) -> AsyncGenerator[EngineClient]:
        """As ModelLeases.lease; ModelNotFound has the name in the request."""
        names = (None,) if name is None else names_for(name)
        async with contextlib.AsyncExitStack() as stack:
            yield await self._first(stack, names, keep_alive_s)

    async def _first(
        self, stack: contextlib.AsyncExitStack, names: Sequence[str | None], keep_alive_s: float | None
    ) -> EngineClient:
        missing: ModelNotFound | None = None
        for candidate in names:
            try:
                return await stack.enter_async_context(self._models.lease(candidate, keep_alive_s))
            except ModelNotFound as error:
                missing = missing or error
        assert missing is not None
        raise missing
