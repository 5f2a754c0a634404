"""Pulls under way, for the one who asked and for everybody who looks at the list of models. Event loop only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jan_serve.api.management import wire
from jan_serve.api.management.work import running
from jan_serve.errors import JanServeError
from jan_serve.store.index import ModelRecord
from jan_serve.store.library import ModelLibrary

if TYPE_CHECKING:
    # Loaded with the first pull: the HTTP client takes a while.
    from jan_serve.store.hub.pull import PullPlan

logger = logging.getLogger(__name__)

Event = dict[str, Any]

_TELL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Download:
    """How far a pull is. name: of the model that it brings. file: the first one, as `org/repo/path`. Bytes of all."""

    name: str
    file: str
    done: int
    total: int


class Pulls:
    """The pulls of one server. Callers that want the same files share one transfer."""

    def __init__(self, library: ModelLibrary) -> None:
        self._library = library
        self._watchers: list[_Watcher] = []
        self._background: dict[asyncio.Task[None], str] = {}

    def downloads(self) -> tuple[Download, ...]:
        """What is under way, each model once."""
        return tuple({watcher.name: watcher.download() for watcher in self._watchers}.values())

    async def pull(self, asked: str, plan: PullPlan) -> wire.Pulled:
        """Do it. Raises what ModelLibrary.pull raises; cancelling keeps what came."""
        watcher = self._watch(asked, plan)
        try:
            return pulled(plan, await self._library.pull(plan, watcher))
        finally:
            self._watchers.remove(watcher)

    async def events(self, asked: str, plan: PullPlan) -> AsyncGenerator[Event]:
        """`download_progress` events, then `download_finished`. Closing the stream stops the pull; what came is kept.

        Raises what ModelLibrary.pull raises.
        """
        watcher = self._watch(asked, plan)
        try:
            yield watcher.begin()
            async with running(self._library.pull(plan, watcher)) as work:
                while not work.done():
                    await asyncio.wait([work], timeout=_TELL_S)
                    for event in watcher.take():
                        yield event
                yield _event(asked, "download_finished", {**pulled(plan, work.result())})
        finally:
            self._watchers.remove(watcher)

    def begin(self, asked: str, plan: PullPlan) -> None:
        """Do it in the background; `downloads` shows it, and the log how it ended."""
        task = asyncio.create_task(self._by_itself(asked, plan), name=f"pull {asked}")
        self._background[task] = asked
        task.add_done_callback(self._background.pop)

    async def stop(self, asked: str) -> bool:
        """Stop those in the background that were begun by this name; False where there are none."""
        tasks = [task for task, name in self._background.items() if name == asked]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return bool(tasks)

    def _watch(self, asked: str, plan: PullPlan) -> _Watcher:
        watcher = _Watcher(asked, plan)
        self._watchers.append(watcher)
        return watcher

    async def _by_itself(self, asked: str, plan: PullPlan) -> None:
        try:
            done = await self.pull(asked, plan)
            logger.info("pulled %s", done["model"])
        except JanServeError as error:
            logger.warning("%s was not pulled: %s", asked, error.message)


def pulled(plan: PullPlan, record: ModelRecord) -> wire.Pulled:
    """The model that a pull brought."""
    return {
        "success": True,
        "model": record.name,
        "aliases": list(record.aliases),
        "size_bytes": plan.n_bytes,
    }


def progress_of(download: Download) -> dict[str, wire.FileProgress]:
    """In llama-server's form: by file."""
    return {download.file: {"done": download.done, "total": download.total}}


class _Watcher:
    """Collects what a pull says until it is told. The latest count replaces the one before."""

    def __init__(self, asked: str, plan: PullPlan) -> None:
        self.name = plan.name
        self._asked = asked
        self._plan = plan
        self._done = 0
        self._told = -1
        self._words: list[str] = []

    def received(self, n_bytes: int) -> None:
        self._done = n_bytes

    def note(self, text: str) -> None:
        self._words.append(text)

    def download(self) -> Download:
        plan = self._plan
        return Download(
            plan.name, f"{plan.reference.repo}/{plan.model.files[0].path}", self._done, plan.n_bytes
        )

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
        return _event(self._asked, "download_started", data)

    def take(self) -> list[Event]:
        events = [_event(self._asked, "download_message", {"message": words}) for words in self._words]
        self._words.clear()
        if self._done != self._told:
            self._told = self._done
            events.append(_event(self._asked, "download_progress", {**progress_of(self.download())}))
        return events


def _event(model: str, kind: str, data: dict[str, Any]) -> Event:
    return {"model": model, "event": kind, "data": data}
