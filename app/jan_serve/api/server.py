"""Runs the application on a listening socket until a signal, then drains."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

import uvicorn

from jan_serve.api.app import AppParts, create_app
from jan_serve.api.management.pulls import Management
from jan_serve.api.routes.log import recent_log
from jan_serve.daemon.running import ServerObserver
from jan_serve.errors import Draining
from jan_serve.helpers.pool import HelperPool
from jan_serve.http.draining_server import DrainingServer, server_config
from jan_serve.http.errors import RETRY_AFTER_S
from jan_serve.quick_imports import quick_imports
from jan_serve.resources import page_folder, shipped_grammars
from jan_serve.wiring.parts import ServerParts
from jan_serve.wiring.user_files import GrammarFiles, SchemaFiles

_IN_MEMORY: Final = frozenset({"loading", "ready", "stopping"})
_HELPERS_KEPT_S: Final = 60.0
"""How long helper processes stay while no model is in memory."""


class ModelServer(DrainingServer):
    """Ends the models and the helpers when it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: AppParts,
        parts: ServerParts,
        drain_s: float,
        observer: ServerObserver | None = None,
        *,
        background: Collection[asyncio.Task[None]] = (),
    ) -> None:
        """background: running work that no request waits for."""
        super().__init__(config, app.lifecycle, drain_s, observer)
        self.application: Final = app
        self._parts = parts
        self._background = background
        self._busy_at = time.monotonic()
        self._needed: set[HelperPool[Any, Any]] = set()

    async def main_loop(self) -> None:
        self._busy_at = time.monotonic()  # no request could arrive before
        resuming = asyncio.create_task(self.application.background.start(), name="journal")
        await super().main_loop()
        await resuming

    async def attend(self, idle_s: float) -> None:
        """Have helper processes ready once a model that needs them is loaded, and none after a rest without models."""
        parts = self._parts
        await self.application.totals().save_if_due()
        ready = [model.facts for model in parts.models.snapshot().models if model.state == "ready"]
        perceives = any(
            facts is not None and {"vision", "audio"}.intersection(facts.modalities) for facts in ready
        )
        for pool in parts.helpers:
            is_needed = perceives if pool is parts.decoder else bool(ready)
            if is_needed and pool not in self._needed:
                await pool.start()
                self._needed.add(pool)
            elif not is_needed:
                self._needed.discard(pool)
            if idle_s >= _HELPERS_KEPT_S:
                await pool.rest()

    def idle_s(self) -> float:
        now = time.monotonic()
        if (
            self._background
            or self.application.background.is_busy
            or any(model.state in _IN_MEMORY for model in self._parts.models.snapshot().models)
        ):
            self._busy_at = now
        return min(super().idle_s(), now - self._busy_at)

    async def finish(self, drain_s: float) -> None:
        await self.application.background.stop()
        await self._parts.models.shutdown(drain_s)
        error = Draining("The server is shutting down.", retry_after=RETRY_AFTER_S)
        self.application.running.expire_all(error)
        if self.application.pulls is not None:
            self.application.pulls.end(error)
        for pool in self._parts.helpers:
            await pool.close()
        await self.application.background.journal.close()


def run(
    parts: ServerParts,
    sockets: Sequence[socket.socket],
    runner: asyncio.Runner,
    observer: ServerObserver | None = None,
) -> int:
    """Serve on the sockets, which already listen. Blocks until the server has stopped. Returns the exit status.

    runner: of the event loop, on which parts of the server may live already; it stays open.
    """
    settings = parts.settings
    management = Management(parts.models, parts.library) if parts.library is not None else None
    with recent_log() as log:
        with quick_imports():
            app = create_app(
                settings,
                parts.models,
                parts.renderer.ask,
                parts.compiler.ask,
                named_grammars=GrammarFiles(shipped_grammars(), settings.grammars_dir),
                schemas=SchemaFiles(settings.grammars_dir).read,
                profiles=parts.profiles,
                page=page_folder(),
                management=management,
                log=log,
                control=parts.control,
                decoder=parts.decoder.ask,
            )
        server = ModelServer(
            server_config(app),
            app.state.parts,
            parts,
            settings.drain_timeout_s,
            observer,
            background=management.background if management is not None else (),
        )
        return runner.run(serve_and_close(server, parts, list(sockets)))


async def serve_and_close(server: ModelServer, parts: ServerParts, sockets: list[socket.socket]) -> int:
    """Serve until the server stops, then close every part. The library reads headers in advance."""
    if parts.library is not None:
        parts.library.start_reading()
    try:
        await server.serve(sockets=sockets)
    finally:
        try:
            await server.application.close()
        finally:
            await parts.close()
    return 0 if server.started else 1
