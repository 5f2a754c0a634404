"""Events of models: of one load, or of all models while a client listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final

from jan_serve.api.management import Management, wire
from jan_serve.api.management.listing import status
from jan_serve.api.management.pulls import Pulls, progress_of
from jan_serve.api.management.scoped_task import running

Event = dict[str, Any]

_RELOAD: Final[Event] = {"model": "*", "event": "models_reload", "data": {}}
_LOAD_POLL_S: Final = 0.1
_POLL_S: Final = 0.25
_FOLDER_POLL_S: Final = 2.0


async def load_events(management: Management, name: str, keep_alive_s: float | None) -> AsyncGenerator[Event]:
    """`model_status` events of a load. Closing the stream stops the load. Raises as ModelManager.load."""
    manager = management.manager
    sent: object = None
    async with running(manager.load(name, keep_alive_s)) as work:
        while not work.done():
            await asyncio.wait([work], timeout=_LOAD_POLL_S)
            now = next((state for state in manager.snapshot().models if state.name == name), None)
            seen = status(now)
            if not work.done() and seen["value"] == "loading" and seen != sent:
                sent = seen
                yield _status_event(name, seen)
        yield _status_event(work.result(), {"value": "loaded"})


async def all_events(management: Management, pulls: Pulls) -> AsyncGenerator[Event]:
    """Changes of every model, from now on: `model_status`, `download_progress`, `model_remove`, `models_reload`.

    Starts with `models_reload`: later events keep a `GET /models` up to date. Ends when it is closed, and when
    the server drains. A change that is undone between two polls is not reported.
    """
    names = await _names(management)
    known = _states(management)
    yield _RELOAD
    downloads: dict[str, Any] = {}
    polls = 0
    while True:
        await asyncio.sleep(_POLL_S)
        if management.manager.snapshot().draining:
            return
        now = _states(management)
        for name, seen in now.items():
            if known.get(name, {"value": "unloaded"}) != seen:
                yield _status_event(name, seen)
        known = now
        under_way = {download.name: progress_of(download) for download in pulls.downloads()}
        for name, progress in under_way.items():
            if downloads.get(name) != progress:
                yield {"model": name, "event": "download_progress", "data": progress}
        ended = downloads.keys() - under_way.keys()
        downloads = under_way
        polls += 1
        if ended or polls * _POLL_S >= _FOLDER_POLL_S:
            polls = 0
            present = await _names(management)
            for event in _changes(names, present, ended):
                yield event
            names = present


def _changes(before: set[str], present: set[str], ended: Iterable[str]) -> Iterable[Event]:
    for name in sorted(ended):
        kind = "download_finished" if name in present else "download_failed"
        yield {"model": name, "event": kind, "data": {}}
    for name in sorted(before - present):
        yield {"model": name, "event": "model_remove", "data": {}}
    if present - before:
        yield _RELOAD


async def _names(management: Management) -> set[str]:
    return {model.name for model in await management.library.models()}


def _states(management: Management) -> dict[str, wire.Status]:
    return {state.name: status(state) for state in management.manager.snapshot().models}


def _status_event(name: str, seen: wire.Status) -> Event:
    """llama-server's `status` is the value alone."""
    data = {key: value for key, value in seen.items() if key != "value"}
    return {"model": name, "event": "model_status", "data": {"status": seen["value"], **data}}
