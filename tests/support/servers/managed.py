"""The application with its management routes: a real models folder and hub client, over fake engines.

The names of the files in the folder decide what the engines do (see `fake_engine`).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from jan_serve.api.app import create_app
from jan_serve.api.management.pulls import Management
from jan_serve.config import Settings
from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller
from jan_serve.store.hub.retries import RetryPolicy
from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver, manager_limits
from tests.support.engine.engines import FAKE_ENGINE
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import NoShutdown, serve_app
from tests.unit.store.gguf_builder import GgufBytes

QUICK = RetryPolicy(connect_s=2, read_s=0.3, answer_s=2, tries=3, backoff_s=0.01, max_wait_s=0.2)


@dataclass(frozen=True)
class Managed:
    """The parts. `client` reaches the application without a socket; `app` is for tests that need one."""

    app: FastAPI
    client: httpx.AsyncClient
    manager: ModelManager
    library: ModelLibrary
    folder: Path


def add_model(folder: Path, name: str, content: bytes | None = None) -> Path:
    """A small GGUF file of this name (with `/`, without suffix)."""
    path = folder / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(GgufBytes().build() if content is None else content)
    return path


@contextlib.asynccontextmanager
async def managed_app(
    folder: Path,
    *,
    hub: str | None = None,
    retry_policy: RetryPolicy = QUICK,
    engine: tuple[str, ...] = FAKE_ENGINE,
    other_programs: Mapping[str, Sequence[Path]] | None = None,
    **settings: Any,
) -> AsyncGenerator[Managed]:
    """The application over the models in `folder`; its workers end with the block. hub: its endpoint."""
    made = Settings(data_dir=folder / ".data", models_dir=folder, **settings)
    resolver = build_resolver(made)
    sources = ModelSources(resolver, made)
    manager = ModelManager(sources, engine, manager_limits(made))
    access = HubAccess(hub) if hub is not None else HubAccess()
    library = ModelLibrary(
        resolver,
        folder,
        lambda: Puller(folder, access, retry_policy=retry_policy),
        other_programs=lambda: other_programs or {},
    )
    app = create_app(
        made,
        manager,
        render_inline,
        translate_inline,
        profiles=sources.profiles,
        management=Management(manager, library),
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Managed(app, client, manager, library, folder)
    finally:
        await manager.shutdown(0)


@contextlib.asynccontextmanager
async def listening(managed: Managed) -> AsyncGenerator[int]:
    """The application on a real socket, for clients that leave; yields its port."""
    async with serve_app(managed.app, NoShutdown(managed.manager)) as port:
        yield port
