"""Processes that every server needs, started before this process imports the server, which takes longer.

`begin` comes before the command line is read. The command that serves takes what has begun.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from types import TracebackType
from typing import Self

from jan_serve.cli.server.daemon_threads import DaemonThreads
from jan_serve.helpers.pool import HelperPool
from jan_serve.helpers.rendering import RENDERING
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.supervisor.workers.spare_worker import SpareWorker


class HeadStart:
    """The server's event loop, and a worker and a template renderer on it. As a context, it ends all of them."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=event_loop_factory())
        self.runner.get_loop().set_default_executor(DaemonThreads())
        self.worker = SpareWorker()
        self.renderer = HelperPool(RENDERING)

    def start(self, *, huge_pages: bool = True) -> None:
        """Blocks until the processes are spawned. Those that run already stay. huge_pages: as the models have it."""
        self.runner.run(self._start(huge_pages))

    async def _start(self, huge_pages: bool) -> None:
        await self.worker.start(own_command("worker"), huge_pages=huge_pages)
        await self.renderer.start()

    async def _end(self) -> None:
        await self.worker.close()
        await self.renderer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.runner.run(self._end())
        finally:
            self.runner.close()


_begun: list[HeadStart] = []


def begin() -> None:
    """Start them with the default settings. They end with this process, unless they are taken."""
    head_start = HeadStart()
    _begun.append(head_start)
    atexit.register(_abandon)
    head_start.start()


def take() -> HeadStart:
    """The start that has begun, else one that has not started. The caller is its context."""
    return _begun.pop() if _begun else HeadStart()


def _abandon() -> None:
    while _begun:
        with _begun.pop():
            pass


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory that uvicorn would choose."""
    try:
        import uvloop
    except ImportError:  # it does not exist for Windows
        return None
    return uvloop.new_event_loop
