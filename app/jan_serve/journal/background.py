"""Work that no request waits for: it begins with the server, and ends when it drains, for the next one to go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from jan_serve.errors import StoreError
from jan_serve.journal.journal import Journal

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 60.0


class Background:
    """The tasks over one journal. Event loop only."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._starts: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: asyncio.Task[None] | None = None
        self._ends = False

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def at_start(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Call this when the server starts, if there is a journal of an earlier one."""
        self._starts.append(begin)

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run it beside the requests. `stop` cancels it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._ends:
            task.cancel()
        return task

    async def start(self) -> None:
        """Take up what an earlier server left: now, or once the journal can be used."""
        if self.journal.exists and not await self._is_taken_up():
            self._later = asyncio.create_task(self._take_up_later(), name="journal")

    async def stop(self) -> None:
        """End all tasks, and wait for that."""
        self._ends = True
        if self._later is not None:
            self._later.cancel()
            await asyncio.gather(self._later, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _is_taken_up(self) -> bool:
        for begin in self._starts:
            try:
                await begin()
            except Exception as error:
                is_ours = isinstance(error, StoreError)
                logger.error("what the journal holds waits: %s", error, exc_info=not is_ours)
                return False
        return True

    async def _take_up_later(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            if await self._is_taken_up():
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)
