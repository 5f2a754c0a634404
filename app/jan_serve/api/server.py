"""Runs the application on a listening socket until a signal, then drains."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from typing import Final

import uvicorn

from jan_serve.api.app import AppParts, create_app
from jan_serve.api.guards.drain import RETRY_AFTER_S
from jan_serve.api.http.draining_server import DrainingServer, server_config
from jan_serve.api.management import Management
from jan_serve.api.routes.recent_log import recent_log
from jan_serve.config import Settings
from jan_serve.control.control_plane import ServerControl
from jan_serve.daemon.observer import ServerObserver
from jan_serve.errors import Draining
from jan_serve.generation.profiles import Profiles
from jan_serve.quick_imports import quick_imports
from jan_serve.resources import page_folder, shipped_grammars
from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.constraint_compiler import ConstraintCompilerPool
from jan_serve.supervisor.media_decoder import MediaDecoderPool
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.template_renderer import TemplateRendererPool
from jan_serve.wiring.grammar_files import GrammarFiles
from jan_serve.wiring.schema_files import SchemaFiles

_IN_MEMORY: Final = frozenset({"loading", "ready", "stopping"})
_HELPERS_KEPT_S: Final = 60.0
"""How long processes for templates and constraints stay while no model is in memory."""


class ModelServer(DrainingServer):
    """Ends the models and the helpers when it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        parts: AppParts,
        models: ModelManager,
        drain_s: float,
        observer: ServerObserver | None = None,
        helpers: Sequence[TemplateRendererPool | ConstraintCompilerPool | MediaDecoderPool] = (),
        *,
        background: Collection[asyncio.Task[None]] = (),
    ) -> None:
        """background: running work that no request waits for."""
        super().__init__(config, parts.lifecycle, drain_s, observer)
        self._helpers = helpers
        self._background = background
        self._running = parts.running
        self._models = models
        self._busy_at = time.monotonic()
        self._needed: set[TemplateRendererPool | ConstraintCompilerPool | MediaDecoderPool] = set()

    async def main_loop(self) -> None:
        self._busy_at = time.monotonic()  # no request could arrive before
        await super().main_loop()

    async def attend(self, idle_s: float) -> None:
        """Have helper processes ready once a model that needs them is loaded, and none after a rest without models."""
        ready = [model.facts for model in self._models.snapshot().models if model.state == "ready"]
        perceives = any(
            facts is not None and {"vision", "audio"}.intersection(facts.modalities) for facts in ready
        )
        for helpers in self._helpers:
            is_needed = perceives if isinstance(helpers, MediaDecoderPool) else bool(ready)
            if is_needed and helpers not in self._needed:
                await helpers.start()
                self._needed.add(helpers)
            elif not is_needed:
                self._needed.discard(helpers)
            if idle_s >= _HELPERS_KEPT_S:
                await helpers.rest()

    def idle_s(self) -> float:
        now = time.monotonic()
        if self._background or any(model.state in _IN_MEMORY for model in self._models.snapshot().models):
            self._busy_at = now
        return min(super().idle_s(), now - self._busy_at)

    async def finish(self, drain_s: float) -> None:
        await self._models.shutdown(drain_s)
        message = "The server is shutting down."
        self._running.expire_all(Draining(message, retry_after=RETRY_AFTER_S))
        for helpers in self._helpers:
            await helpers.close()


def run(
    settings: Settings,
    models: ModelManager,
    renderer: TemplateRendererPool,
    translator: ConstraintCompilerPool,
    sock: socket.socket,
    runner: asyncio.Runner,
    library: ModelLibrary | None = None,
    observer: ServerObserver | None = None,
    profiles: Profiles | None = None,
    control: ServerControl | None = None,
    more_sockets: Sequence[socket.socket] = (),
    decoder: MediaDecoderPool | None = None,
) -> int:
    """Serve on `sock` and more_sockets, which already listen. Blocks until the server has stopped.

    Returns the exit status.

    runner: of the event loop, on which parts of the server may live already; it stays open. library: None disables the
    management routes. profiles: configuration of single models. control: None disables the control plane. decoder: None
    rejects media.
    """
    management = Management(models, library) if library is not None else None
    with recent_log() as log:
        with quick_imports():
            app = create_app(
                settings,
                models,
                renderer.render,
                translator.translate,
                named_grammars=GrammarFiles(shipped_grammars(), settings.grammars_dir),
                schemas=SchemaFiles(settings.grammars_dir).read,
                profiles=profiles,
                page=page_folder(),
                management=management,
                log=log,
                control=control,
                decoder=None if decoder is None else decoder.decode,
            )
        parts: AppParts = app.state.parts
        drain_s = settings.drain_timeout_s
        helpers = (renderer, translator, *(() if decoder is None else (decoder,)))
        background = management.background if management is not None else ()
        server = ModelServer(
            server_config(app), parts, models, drain_s, observer, helpers, background=background
        )
        sockets = [sock, *more_sockets]
        return runner.run(
            serve_and_close(
                server,
                models,
                renderer,
                translator,
                sockets,
                library=library,
                control=control,
                decoder=decoder,
            )
        )


async def serve_and_close(
    server: ModelServer,
    models: ModelManager,
    renderer: TemplateRendererPool,
    translator: ConstraintCompilerPool,
    sockets: list[socket.socket],
    *,
    library: ModelLibrary | None = None,
    control: ServerControl | None = None,
    decoder: MediaDecoderPool | None = None,
) -> int:
    """Serve until the server stops, then close every part.

    library: its headers are read in advance.
    """
    if library is not None:
        library.start_reading()
    async with AsyncExitStack() as closing:  # the others close even if an interrupt cancels one
        closing.push_async_callback(translator.close)
        closing.push_async_callback(renderer.close)
        if decoder is not None:
            closing.push_async_callback(decoder.close)
        if control is not None:
            closing.push_async_callback(control.close)
        if library is not None:
            closing.push_async_callback(library.close)
        # Returns at once after a drain; after a failed start it ends what was started.
        closing.push_async_callback(models.shutdown, 0.0)
        await server.serve(sockets=sockets)
    return 0 if server.started else 1
