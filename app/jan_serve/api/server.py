"""Runs the application on a listening socket until a signal, then drains."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from jan_serve.api.app import AppParts, create_app
from jan_serve.api.daemon_threads import DaemonThreads
from jan_serve.api.guards.drain import RETRY_AFTER_S
from jan_serve.api.http.connection import HttpConnection
from jan_serve.api.management import Management
from jan_serve.api.routes.recent_log import recent_log
from jan_serve.config import Settings
from jan_serve.control.control_plane import ServerControl
from jan_serve.daemon.observer import ServerObserver
from jan_serve.errors import Draining, JanServeError
from jan_serve.generation.profiles import ProfileOf
from jan_serve.resources import page_folder, shipped_grammars
from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.constraint_compiler import ConstraintCompilerPool
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.template_renderer import TemplateRendererPool
from jan_serve.wiring.grammar_files import GrammarFiles

logger = logging.getLogger(__name__)

_CLOSING_S: Final = 2.0
"""Lets the last error events reach their readers after every request has ended."""
_IN_MEMORY: Final = frozenset({"loading", "ready", "stopping"})
_TICK_S: Final = 1.0
"""Interval between updates of the Date header, the only work of an idle server."""


class DrainingServer(uvicorn.Server):
    """First SIGTERM or SIGINT: new requests are rejected, running ones get `drain_s`. Second: everything ends now.

    Does not re-raise the signal: a server that stops on request exits with status 0.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        parts: AppParts,
        models: ModelManager,
        drain_s: float,
        observer: ServerObserver | None = None,
        helpers: Sequence[TemplateRendererPool | ConstraintCompilerPool] = (),
    ) -> None:
        super().__init__(config)
        self._helpers = helpers
        self._observer = observer or ServerObserver()
        self._parts = parts
        self._models = models
        self._drain_s = drain_s
        self._in_memory_at = -math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self.listening = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None:
            self._stop_soon()
        else:
            self.should_exit = True

    def _stop_soon(self) -> None:
        """Like `stop`, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.stop)

    async def main_loop(self) -> None:
        """Replaces uvicorn's loop, which wakes ten times a second."""
        self._loop = asyncio.get_running_loop()
        self._in_memory_at = time.monotonic()  # no request could arrive before
        self.listening.set()
        self._observer.listening(self._stop_soon)
        while not self.should_exit:
            await self.on_tick(0)
            self._observer.alive(self._idle_s())
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._stop.wait()
            except TimeoutError:
                continue
            self.should_exit = True

    def _idle_s(self) -> float:
        now = time.monotonic()
        if any(model.state in _IN_MEMORY for model in self._models.snapshot().models):
            self._in_memory_at = now
        return min(self._parts.lifecycle.idle_s, now - self._in_memory_at)

    def stop(self) -> None:
        """Begin to drain; during a drain, end everything now. On the event loop; returns at once."""
        first = not self._parts.lifecycle.draining
        drain_s = self._drain_s if first else 0.0
        # Logged before the drain is visible, because followers of the log disconnect then.
        logger.info("stopping: running requests have %.0f s", drain_s)
        self._parts.lifecycle.draining = True
        self._observer.stopping(drain_s)
        task = asyncio.get_running_loop().create_task(self._end(drain_s), name="drain")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, drain_s: float) -> None:
        try:
            await self._models.shutdown(drain_s)
            message = "The server is shutting down."
            self._parts.running.expire_all(Draining(message, retry_after=RETRY_AFTER_S))
            for helpers in self._helpers:
                await helpers.close()
            async with asyncio.timeout(_CLOSING_S):
                await self._parts.lifecycle.wait_idle()
        except TimeoutError:
            logger.warning("%d requests did not end in time", self._parts.lifecycle.open_requests)
            self.force_exit = True
        finally:
            self._stop.set()


def server_config(app: FastAPI, connection: type[HttpConnection] = HttpConnection) -> uvicorn.Config:
    """Connections close one second after the last answer."""
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


def run(
    settings: Settings,
    models: ModelManager,
    renderer: TemplateRendererPool,
    translator: ConstraintCompilerPool,
    sock: socket.socket,
    library: ModelLibrary | None = None,
    observer: ServerObserver | None = None,
    profile_of: ProfileOf | None = None,
    control: ServerControl | None = None,
) -> int:
    """Serve on `sock`, which already listens. Blocks until the server has stopped. Returns the exit status.

    library: None disables the management routes. profile_of: configuration of single models. control: None disables the
    control plane.
    """
    with recent_log() as log:
        app = create_app(
            settings,
            models,
            renderer,
            translator,
            named_grammars=GrammarFiles(shipped_grammars(), settings.grammars_dir),
            profile_of=profile_of,
            page=page_folder(),
            management=Management(models, library) if library is not None else None,
            log=log,
            control=control,
        )
        config = server_config(app)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            parts: AppParts = app.state.parts
            drain_s = settings.drain_timeout_s
            server = DrainingServer(config, parts, models, drain_s, observer, (renderer, translator))
            serving = serve_and_close(
                server, models, renderer, translator, sock, settings.model, library=library, control=control
            )
            return runner.run(serving)


async def serve_and_close(
    server: DrainingServer,
    models: ModelManager,
    renderer: TemplateRendererPool,
    translator: ConstraintCompilerPool,
    sock: socket.socket,
    preload: str | None,
    *,
    library: ModelLibrary | None = None,
    control: ServerControl | None = None,
) -> int:
    """Serve until the server stops, then close every part.

    preload: the default model is loaded before the first request. library: its headers are read in advance.
    """
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
    preparing = [asyncio.create_task(renderer.start(), name="start renderer")]
    if preload is not None:
        preparing.append(asyncio.create_task(_load(models), name="preload"))
    if library is not None:
        preparing.append(asyncio.create_task(library.read_headers(), name="read headers"))
    async with AsyncExitStack() as closing:  # the others close even if an interrupt cancels one
        closing.push_async_callback(translator.close)
        closing.push_async_callback(renderer.close)
        if control is not None:
            closing.push_async_callback(control.close)
        # Returns at once after a drain; after a failed start it ends what was started.
        closing.push_async_callback(models.shutdown, 0.0)
        closing.push_async_callback(_cancelled, preparing)
        await server.serve(sockets=[sock])
    return 0 if server.started else 1


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _load(models: ModelManager) -> None:
    """Load the default model. A failure is only logged here; the first request reports it."""
    try:
        async with models.lease(None):
            pass
    except JanServeError as error:
        logger.warning("the model is not ready: %s", error.message)
