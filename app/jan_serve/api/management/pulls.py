"""Work on models that goes on beside requests: loads, and downloads with their progress. Event loop only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from jan_serve.errors import JanServeError
from jan_serve.store.index import ModelRecord
from jan_serve.store.library import ModelLibrary
from jan_serve.supervisor.models.model_manager import ModelManager

if TYPE_CHECKING:
    from jan_serve.api.management import wire
    from jan_serve.store.hub.pull import PullPlan

logger = logging.getLogger(__name__)

T = TypeVar("T")


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run a coroutine as a task; the end of the block cancels it and waits for its clean-up."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


Event = dict[str, Any]

_PROGRESS_S: Final = 0.2


class Management(msgspec.Struct, frozen=True):
    """The models in memory and the models on disk, for the routes.

    background: running loads and downloads that no request waits for.
    """

    manager: ModelManager
    library: ModelLibrary
    background: set[asyncio.Task[None]] = msgspec.field(default_factory=set[asyncio.Task[None]])

    def keep(self, task: asyncio.Task[None]) -> None:
        """Count a task as background work until it is done."""
        self.background.add(task)
        task.add_done_callback(self.background.discard)


class PullProgress(msgspec.Struct, frozen=True):
    """Progress of a pull. name: of the model. file: the first one, as `org/repo/path`. done, total: bytes, of all."""

    name: str
    file: str
    done: int
    total: int


class Pulls:
    """The pulls of one server."""

    def __init__(self, library: ModelLibrary) -> None:
        self._library = library
        self._watchers: list[_Watcher] = []
        self._background: dict[asyncio.Task[None], str] = {}
        self._ending: JanServeError | None = None

    def downloads(self) -> tuple[PullProgress, ...]:
        """Running downloads, one for each model."""
        return tuple({watcher.name: watcher.download() for watcher in self._watchers}.values())

    async def pull(self, requested: str, plan: PullPlan) -> wire.Pulled:
        """Raises as ModelLibrary.pull; cancelling keeps the partial download."""
        with self._watched(requested, plan) as watcher:
            return pulled(plan, await self._library.pull(plan, watcher))

    async def events(self, requested: str, plan: PullPlan) -> AsyncGenerator[Event]:
        """`download_progress` events, then `download_finished`. Closing the stream stops the pull and keeps the partial
        download. Raises as ModelLibrary.pull.
        """
        with self._watched(requested, plan) as watcher:
            yield watcher.begin()
            async with running(self._library.pull(plan, watcher)) as work:
                while not work.done():
                    await asyncio.wait([work], timeout=_PROGRESS_S)
                    if self._ending is not None:
                        raise self._ending
                    for event in watcher.take():
                        yield event
                yield _event(requested, "download_finished", {**pulled(plan, work.result())})

    def begin(self, requested: str, plan: PullPlan) -> asyncio.Task[None]:
        """Pull in the background; `downloads` shows its progress, the log its end. Returns the running pull."""
        task = asyncio.create_task(self._in_background(requested, plan), name=f"pull {requested}")
        self._background[task] = requested
        task.add_done_callback(self._background.pop)
        return task

    async def stop(self, requested: str) -> bool:
        """Stop the background pulls that were requested by this name; False if there are none."""
        tasks = [task for task, name in self._background.items() if name == requested]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return bool(tasks)

    def end(self, error: JanServeError) -> None:
        """Stop the pulls whose progress is streamed, which ends with this error."""
        self._ending = error

    @contextlib.contextmanager
    def _watched(self, requested: str, plan: PullPlan) -> Generator[_Watcher]:
        watcher = _Watcher(requested, plan)
        self._watchers.append(watcher)
        try:
            yield watcher
        finally:
            self._watchers.remove(watcher)

    async def _in_background(self, requested: str, plan: PullPlan) -> None:
        try:
            done = await self.pull(requested, plan)
            logger.info("pulled %s", done["model"])
        except JanServeError as error:
            logger.warning("cannot pull %s: %s", requested, error.message)


def pulled(plan: PullPlan, record: ModelRecord) -> wire.Pulled:
    return {
        "success": True,
        "model": record.name,
        "aliases": list(record.aliases),
        "size_bytes": plan.n_bytes,
    }


def progress_of(download: PullProgress) -> dict[str, wire.FileProgress]:
    """Bytes done and in all by file, as llama-server shows them."""
    return {download.file: {"done": download.done, "total": download.total}}


class _Watcher:
    """Collects the progress of a pull until it is sent. The latest count replaces the one before."""

    def __init__(self, requested: str, plan: PullPlan) -> None:
        self.name = plan.name
        self._requested = requested
        self._plan = plan
        self._done = 0
        self._sent = -1
        self._messages: list[str] = []

    def received(self, n_bytes: int) -> None:
        self._done = n_bytes

    def note(self, text: str) -> None:
        self._messages.append(text)

    def download(self) -> PullProgress:
        plan = self._plan
        return PullProgress(
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
        return _event(self._requested, "download_started", data)

    def take(self) -> list[Event]:
        events = [_event(self._requested, "download_message", {"message": text}) for text in self._messages]
        self._messages.clear()
        if self._done != self._sent:
            self._sent = self._done
            events.append(_event(self._requested, "download_progress", {**progress_of(self.download())}))
        return events


def _event(model: str, kind: str, data: dict[str, Any]) -> Event:
    return {"model": model, "event": kind, "data": data}
