"""How often a request is tried, and alone: one that ends each worker must not end the answers of others for ever.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque

from jan_serve.errors import EngineCrashed, EngineFailure
from jan_serve.supervisor.workers.engine_client import SEND_AGAIN


class RequestTrials:
    """The requests of one model that run alone, one after the other. All others wait until they got on or ended."""

    def __init__(self) -> None:
        self.retries_total = 0
        """Requests of the model that were tried again."""
        self._suspects: deque[Tries] = deque()
        self._changed = asyncio.Event()

    def add(self, suspect: Tries) -> None:
        self._suspects.append(suspect)

    def remove(self, suspect: Tries) -> None:
        self._suspects.remove(suspect)
        self._changed.set()
        self._changed = asyncio.Event()

    async def turn(self, tries: Tries) -> None:
        """Wait until this request may run."""
        while self._suspects and self._suspects[0] is not tries:
            await self._changed.wait()


class Tries:
    """The tries of one request, in workers that end. `close` must follow."""

    def __init__(self, trials: RequestTrials, retry: int) -> None:
        """retry: how often it is tried again without having got on; the second time alone. 0: never."""
        self._trials = trials
        self._retry = retry
        self._ends = 0
        self.is_alone = False
        """Whether it must run alone. Stays after `close`: a worker that then ended was ended by this request."""

    @property
    def may_retry(self) -> bool:
        return self._retry > 0

    async def turn(self) -> None:
        """Wait until it may run."""
        await self._trials.turn(self)

    def again(self, error: EngineFailure) -> None:
        """Its worker ended. Raises the error for its client if it is not tried again."""
        self._ends += 1
        if self._ends > self._retry:
            raise self._last(error)
        self._trials.retries_total += 1
        if self._ends > 1 and not self.is_alone:
            self.is_alone = True
            self._trials.add(self)

    def got_on(self) -> None:
        """It did more than in any worker before: it is not what ended them."""
        if self._ends:
            self._ends = 0
            self.close()
            self.is_alone = False

    def close(self) -> None:
        if self.is_alone:
            self._trials.remove(self)

    def _last(self, error: EngineFailure) -> EngineFailure:
        if not self.is_alone:
            return error
        return EngineCrashed(
            f"{error.message.removesuffix(SEND_AGAIN)} It ended {self._ends} times while it ran this request, at last"
            " while it ran nothing else: the request is not tried again."
        )
