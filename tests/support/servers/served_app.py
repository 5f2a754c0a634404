"""The application on a real socket in a thread of the test's process, for blocking clients such as commands."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jan_serve.api.routes.log import RecentLog, log_router
from jan_serve.http.sse import StreamSettings
from tests.support.engine.thread_engine import THREAD_ENGINE, thread_engines
from tests.support.servers.fronts import NoShutdown, serve_app
from tests.support.servers.managed import Managed, managed_app

_LIMIT_S = 20.0


@dataclass(frozen=True)
class ServedApp:
    """Its URL, its parts, which live on its own event loop, and its log."""

    url: str
    parts: Managed
    log: RecentLog


@contextlib.contextmanager
def served_app(folder: Path, **settings: Any) -> Generator[ServedApp]:
    """`managed_app` over the models in `folder`, on a free port, with engines in threads; it ends with the block."""
    ready: list[ServedApp] = []
    started = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with managed_app(folder, engine=THREAD_ENGINE, **settings) as parts:
            log = RecentLog()
            lifecycle = parts.app.state.parts.lifecycle
            parts.app.include_router(log_router(log, lifecycle, StreamSettings(15.0, 60.0)))
            models: Any = parts.manager
            async with serve_app(parts.app, NoShutdown(models)) as port:
                ready.append(ServedApp(f"http://127.0.0.1:{port}", parts, log))
                stop.append(lambda: loop.call_soon_threadsafe(ended.set))
                started.set()
                await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),), name="served app")
    with thread_engines():
        thread.start()
        try:
            assert started.wait(_LIMIT_S)
            yield ready[0]
        finally:
            for end in stop:
                end()
            thread.join(_LIMIT_S)
            assert not thread.is_alive()
