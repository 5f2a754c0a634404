"""Model management: list models with their state, load, unload, pull and delete them.

Routes and values follow llama-server's router where it has them (its README, "Using multiple models").
"""

from __future__ import annotations

import msgspec

from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.models.model_manager import ModelManager


class Management(msgspec.Struct, frozen=True):
    """The models in memory and the models on disk, for the routes."""

    manager: ModelManager
    library: ModelLibrary
