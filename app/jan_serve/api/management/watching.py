"""What happens to the models of this server, as events: of one load, or of all models while somebody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final

from jan_serve.api.management import Management, wire
from jan_serve.api.management.listing import status
from jan_serve.api.management.pulls import Pulls, progress_of
from jan_serve.api.management.work import running

Event = dict[str, Any]

_RELOAD: Final[Event] = {"model": "*", "event": "models_reload", "data": {}}
_LOOK_S: Final = 0.1
_LOOK_AT_ALL_S: Final = 0.25
_LOOK_AT_THE_FOLDER_S: Final = 2.0


async def load_events(management: Management, name: str, keep_alive_s: float | None) -> AsyncGenerator[Event]:
    """`model_status` events of a load. Closing the stream stops the load. Raises what ModelControl.load raises."""
    manager = management.manager
    told: object = None
    async with running(manager.load(name, keep_alive_s)) as work:
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_S)
            now = next((state for state in manager.snapshot().models if state.name == name), None)
            seen = status(now)
            if not work.done() and seen["value"] == "loading" and seen != told:
                told = seen
                yield _status_event(name, seen)
        yield _status_event(work.result(), {"value": "loaded"})


async def all_events(management: Management, pulls: Pulls) -> AsyncGenerator[Event]:
    """Changes of every model, from now on: `model_status`, `download_progress`, `model_remove`, `models_reload`.

    Begins with a `models_reload`: what `GET /models` says from then on is kept up to date by the events. Ends when it
    is closed. What changes and changes back between two looks is not told.
    """
    names = await _names(management)
    known = _states(management)
    yield _RELOAD
    downloads: dict[str, Any] = {}
    looks = 0
    while True:
        await asyncio.sleep(_LOOK_AT_ALL_S)
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
        looks += 1
        if ended or looks * _LOOK_AT_ALL_S >= _LOOK_AT_THE_FOLDER_S:
            looks = 0
            there = await _names(management)
            for event in _changes(names, there, ended):
                yield event
            names = there


def _changes(before: set[str], there: set[str], ended: Iterable[str]) -> Iterable[Event]:
    for name in sorted(ended):
        kind = "download_finished" if name in there else "download_failed"
        yield {"model": name, "event": kind, "data": {}}
    for name in sorted(before - there):
        yield {"model": name, "event": "model_remove", "data": {}}
    if there - before:
        yield _RELOAD


async def _names(management: Management) -> set[str]:
    return {model.name for model in await management.library.models()}


def _states(management: Management) -> dict[str, wire.Status]:
    return {state.name: status(state) for state in management.manager.snapshot().models}


def _status_event(name: str, seen: wire.Status) -> Event:
    """llama-server's `status` is the word alone."""
    data = {key: value for key, value in seen.items() if key != "value"}
    return {"model": name, "event": "model_status", "data": {"status": seen["value"], **data}}
