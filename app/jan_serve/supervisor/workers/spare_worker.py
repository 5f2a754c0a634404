"""A worker process that starts before its model is known: its imports overlap with those of the front."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final

from jan_serve.supervisor.workers.child_process import ChildProcess, child_environment

logger = logging.getLogger(__name__)

KEPT_S: Final = 60.0
"""A spare that no load takes costs memory for nothing."""


class SpareWorker:
    """One process at most, for the first load. Event loop only."""

    def __init__(self, *, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._process: ChildProcess | None = None
        self._environment: Mapping[str, str] = {}
        self._expiry: asyncio.Task[None] | None = None

    async def start(self, command: Sequence[str], *, huge_pages: bool) -> None:
        """Returns once it is spawned, or at once if it runs with this setting already; else that one ends.

        A failure is left to the first load, which spawns its own.
        """
        environment = child_environment(os.environ, huge_pages=huge_pages)
        if self._process is not None:
            if environment == self._environment:
                return
            await self.close()
        try:
            process = await ChildProcess.spawn(command, environment)
        except OSError as error:
            logger.warning("no worker could be started in advance: %s", error.strerror)
            return
        self._process, self._environment = process, environment
        self._expiry = asyncio.create_task(self._expire(), name="expiry of the spare worker")

    def take(self, environment: Mapping[str, str]) -> ChildProcess | None:
        """The process, if it runs with this environment. The caller owns it then."""
        process = self._process
        if process is None or process.exited.is_set() or environment != self._environment:
            return None
        self._process = None
        if self._expiry is not None:
            self._expiry.cancel()
        return process

    async def close(self) -> None:
        """End it, unless it was taken. Returns once it is reaped."""
        if self._expiry is not None:
            if self._process is not None:  # else it was taken, or is being ended just now
                self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        await self._end()

    async def _expire(self) -> None:
        await asyncio.sleep(self._kept_s)
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.exited.wait()
            process.close()
