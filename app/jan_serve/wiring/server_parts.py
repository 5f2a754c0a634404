"""The parts of a running server, passed whole to what runs it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jan_serve.config import Settings
from jan_serve.core.request import RenderedChat, RenderRequest
from jan_serve.generation.profiles import Profiles
from jan_serve.helpers.kinds import Compiled, CompileRequest, DecodeMedia
from jan_serve.helpers.pool import HelperPool
from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.models.model_manager import ModelManager

if TYPE_CHECKING:
    from jan_serve.control.control_plane import ServerControl


@dataclass(frozen=True)
class ServerParts:
    """profiles: configuration of single models. library: None disables the management routes; control: its own."""

    settings: Settings
    models: ModelManager
    renderer: HelperPool[RenderRequest, RenderedChat]
    compiler: HelperPool[CompileRequest, Compiled]
    decoder: HelperPool[DecodeMedia, bytes]
    profiles: Profiles | None = None
    library: ModelLibrary | None = None
    control: ServerControl | None = None

    @property
    def helpers(self) -> tuple[HelperPool[Any, Any], ...]:
        """The pools that requests use."""
        return self.renderer, self.compiler, self.decoder

    async def close(self) -> None:
        """End every part, the models first. An interrupt that cancels the end of one does not keep the others."""
        async with AsyncExitStack() as closing:
            for pool in self.helpers:
                closing.push_async_callback(pool.close)
            if self.control is not None:
                closing.push_async_callback(self.control.close)
            if self.library is not None:
                closing.push_async_callback(self.library.close)
            # Returns at once after a drain; after a failed start it ends what was started.
            closing.push_async_callback(self.models.shutdown, 0.0)
