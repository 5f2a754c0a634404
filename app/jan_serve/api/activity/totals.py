"""Counts requests and their tokens by day, key, model and program, and adds them to files now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import date
from typing import Final

from jan_serve.api.activity.recent import Activity
from jan_serve.core.caller import key_of
from jan_serve.store.totals import DayTotals, TotalFiles, TotalRow

logger = logging.getLogger(__name__)

_SAVE_S: Final = 60.0


class Totals:
    """Totals of days and keys, for one event loop. What the disk does not take waits in memory."""

    def __init__(self, files: TotalFiles, today: Callable[[], date] = date.today) -> None:
        self._files = files
        self._today = today
        self._waiting: dict[date, DayTotals] = {}
        self._saving = asyncio.Lock()
        self._saved_s = time.monotonic()

    def count(self, activity: Activity) -> None:
        """Count a request that has ended."""
        record, owner = activity.record, activity.owner
        if owner is None or record.model is None:
            return
        self._waiting.setdefault(self._today(), DayTotals()).add(
            TotalRow(
                owner=key_of(owner),
                model=record.model,
                program=activity.program,
                requests=1,
                prompt_tokens=record.prompt_tokens,
                cached_tokens=record.cached_tokens,
                completion_tokens=record.completion_tokens,
            )
        )

    async def save_if_due(self) -> None:
        """Call it once a second: it saves once a minute."""
        if self._waiting and time.monotonic() - self._saved_s >= _SAVE_S:
            await self.save()

    async def save(self) -> None:
        """Goes on if its caller leaves: what is on its way to the disk is counted nowhere else."""
        await asyncio.shield(asyncio.create_task(self._save(), name="totals"))

    async def _save(self) -> None:
        async with self._saving:
            self._saved_s = time.monotonic()
            waiting, self._waiting = self._waiting, {}
            for day, totals in waiting.items():
                try:
                    await asyncio.to_thread(self._files.add, day, totals)
                except Exception as error:
                    logger.warning("the totals of %s are not saved yet: %s", day, error)
                    again = self._waiting.setdefault(day, DayTotals())
                    for row in totals.rows:
                        again.add(row)

    async def rows(self, owner: str, days: int) -> list[tuple[str, TotalRow]]:
        """The sums of this key, the latest day first; those that could not be saved too."""
        await self.save()
        unsaved = [(day.isoformat(), row) for day, totals in self._waiting.items() for row in totals.rows]
        saved = await asyncio.to_thread(lambda: list(self._files.read(key_of(owner), days)))
        return [each for each in unsaved if each[1].owner == key_of(owner)] + saved
