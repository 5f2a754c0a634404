"""Work that takes a while, as a stream of events: each step while it goes on, and its result or error at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from jan_serve.api.management import wire
from jan_serve.api.management.listing import status
from jan_serve.api.management.ports import ModelControl
from jan_serve.store.index import ModelRecord
from jan_serve.store.library import ModelLibrary

if TYPE_CHECKING:
    # Loaded with the first pull: the HTTP client takes a while.
    from jan_serve.store.pull import PullPlan

T = TypeVar("T")
Event = dict[str, Any]

_LOOK_S = 0.1
_TELL_S = 0.2


async def load_events(control: ModelControl, name: str, keep_alive_s: float | None) -> AsyncGenerator[Event]:
    """`model_status` events of a load. Closing the stream stops the load. Raises what ModelControl.load raises."""
    told: object = None
    async with _running(control.load(name, keep_alive_s)) as work:
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_S)
            now = next((state for state in control.snapshot().models if state.name == name), None)
            seen = status(now)
            if not work.done() and seen["value"] == "loading" and seen != told:
                told = seen
                yield _status_event(name, "loading", progress=seen.get("progress"))
        yield _status_event(work.result(), "loaded")


def _status_event(name: str, value: wire.StatusValue, **data: object) -> Event:
    return {"model": name, "event": "model_status", "data": {"status": value, **data}}


async def pull_events(library: ModelLibrary, asked: str, plan: PullPlan) -> AsyncGenerator[Event]:
    """`download_progress` events, then `download_finished`. Closing the stream stops the pull; what came is kept.

    Raises what ModelLibrary.pull raises.
    """
    watcher = _Watcher(asked, plan)
    yield watcher.begin()
    async with _running(library.pull(plan, watcher)) as work:
        while not work.done():
            await asyncio.wait([work], timeout=_TELL_S)
            for event in watcher.take():
                yield event
        yield {"model": asked, "event": "download_finished", "data": pulled(plan, work.result())}


def pulled(plan: PullPlan, record: ModelRecord) -> wire.Pulled:
    """The model that a pull brought."""
    return {
        "success": True,
        "model": record.name,
        "aliases": list(record.aliases),
        "size_bytes": plan.n_bytes,
    }


class _Watcher:
    """Collects what a pull says until it is told. The latest count replaces the one before."""

    def __init__(self, asked: str, plan: PullPlan) -> None:
        self._asked = asked
        self._plan = plan
        self._count: tuple[int, int] | None = None
        self._words: list[str] = []

    def received(self, n_bytes: int, n_total: int) -> None:
        self._count = (n_bytes, n_total)

    def says(self, text: str) -> None:
        self._words.append(text)

    def begin(self) -> Event:
        plan = self._plan
        data = {
            "name": plan.name,
            "repo": plan.reference.repo,
            "revision": plan.commit,
            "quantization": plan.model.quantisation,
            "reason": plan.reason,
            "total": plan.n_bytes,
            "files": [{"path": file.path, "size_bytes": file.size_bytes} for file in plan.files],
        }
        return self._event("download_started", data)

    def take(self) -> list[Event]:
        events = [self._event("download_message", {"message": words}) for words in self._words]
        self._words.clear()
        if self._count is not None:
            done, total = self._count
            self._count = None
            first = f"{self._plan.reference.repo}/{self._plan.model.files[0].path}"
            events.append(self._event("download_progress", {first: {"done": done, "total": total}}))
        return events

    def _event(self, kind: str, data: dict[str, Any]) -> Event:
        return {"model": self._asked, "event": kind, "data": data}


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """The work as a task that ends with the block, its clean-up included."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
