"""Totals that wait for the disk: none is lost, whatever a save meets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.api.activity.totals import Totals
from jan_serve.store.totals import DayTotals, TotalFiles

pytestmark = pytest.mark.anyio

DAY = date(2026, 11, 28)


class Files(TotalFiles):
    """before: called in the thread that adds, before it does."""

    before: Callable[[], object] = staticmethod(lambda: None)

    def add(self, day: date, totals: DayTotals) -> None:
        self.before()
        super().add(day, totals)


def counted(files: TotalFiles) -> Totals:
    """A request on each of two days."""
    days = iter((DAY, DAY + timedelta(days=1)))
    totals = Totals(files, lambda: next(days))
    record = SimpleNamespace(model="m", prompt_tokens=1, cached_tokens=0, completion_tokens=1)
    for _ in range(2):
        activity: Any = SimpleNamespace(record=record, owner="", program="p")
        totals.count(activity)
    return totals


def saved(files: TotalFiles) -> list[str]:
    return [day for day, _ in files.read("", 30)]


@pytest.mark.parametrize(
    "error", [OSError(28, "full"), RuntimeError("can't start new thread"), MemoryError()]
)
async def test_what_could_not_be_saved_is_saved_later(tmp_path: Path, error: Exception) -> None:
    files, errors = Files(tmp_path), [error]

    def fail_once() -> None:
        if errors:
            raise errors.pop()

    files.before = fail_once
    totals = counted(files)
    await totals.save()
    await totals.save()
    assert saved(files) == ["2026-11-29", "2026-11-28"]


async def test_a_reader_who_leaves_during_a_save_loses_nothing(tmp_path: Path) -> None:
    files, begun, go_on = Files(tmp_path), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(60)

    files.before = wait
    totals = counted(files)
    reading = asyncio.create_task(totals.rows("", 30))
    assert await asyncio.to_thread(begun.wait, 60)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    go_on.set()
    await totals.save()
    assert saved(files) == ["2026-11-29", "2026-11-28"]
