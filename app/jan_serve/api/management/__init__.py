"""Model management: list models with their state, load, unload, pull and delete them.

Routes and values follow llama-server's router where it has them (its README, "Using multiple models").
"""

from __future__ import annotations

import asyncio

import msgspec

from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.models.model_manager import ModelManager


class Management(msgspec.Struct, frozen=True):
    """The models in memory and the models on disk, for the routes.

    background: running loads and downloads that no request waits for.
    """

    manager: ModelManager
    library: ModelLibrary
    background: set[asyncio.Task[None]] = msgspec.field(default_factory=set[asyncio.Task[None]])

    def keep(self, task: asyncio.Task[None]) -> None:
        """Count a task as background work until it is done."""
        self.background.add(task)
        task.add_done_callback(self.background.discard)
