"""Progress of downloads for their clients and for the list of models; the test controls the downloads."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from jan_serve.api.management import pulls as pulls_module
from jan_serve.api.management.pulls import PullProgress, Pulls
from jan_serve.errors import HubUnavailable, JanServeError
from jan_serve.store.hub.download import DownloadWatcher
from jan_serve.store.hub.pull import PullPlan
from jan_serve.store.hub.references import HubReference
from jan_serve.store.hub.repository import HubFile, HubModel
from jan_serve.store.index import ModelRecord, Source

pytestmark = pytest.mark.anyio

FILES = (HubFile("m-Q4_K_M-1.gguf", 60, "0" * 64), HubFile("m-Q4_K_M-2.gguf", 40, "1" * 64))
PLAN = PullPlan("org/m", HubReference("org/m"), "abc", HubModel(FILES), None, ("m",), "it fits")
FILE = "org/m/m-Q4_K_M-1.gguf"


class Library:
    """One download at a time: `steps` are bytes and notes that it reports, one by one as the test allows them."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[int | str | JanServeError | None] = asyncio.Queue()
        self.running = asyncio.Event()
        self.cancelled = False

    async def pull(self, plan: PullPlan, watcher: DownloadWatcher) -> ModelRecord:
        self.running.set()
        try:
            while (step := await self.steps.get()) is not None:
                if isinstance(step, JanServeError):
                    raise step
                watcher.note(step) if isinstance(step, str) else watcher.received(step)
                self.steps.task_done()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        source = Source(kind="hub", name="org/m")
        return ModelRecord(
            name=plan.name, source=source, files=(), modified_ns=0, added_at=0, aliases=("m", "mm")
        )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setattr(pulls_module, "_PROGRESS_S", 0.001)
    return Library()


def pulls_of(library: Any) -> Pulls:
    return Pulls(library)


def progress(done: int) -> dict[str, Any]:
    return {
        "model": "m",
        "event": "download_progress",
        "data": {FILE: {"done": done, "total": 100}},
    }


async def test_a_stream_tells_the_plan_the_progress_and_the_end(library: Library) -> None:
    pulls = pulls_of(library)
    async with aclosing(pulls.events("m", PLAN)) as events:
        started = await anext(events)
        assert (started["model"], started["event"]) == ("m", "download_started")
        assert started["data"] == {
            "name": "org/m",
            "repo": "org/m",
            "revision": "abc",
            "quantization": "Q4_K_M",
            "reason": "it fits",
            "total": 100,
            "files": [
                {"path": "m-Q4_K_M-2.gguf", "size_bytes": 40},
                {"path": "m-Q4_K_M-1.gguf", "size_bytes": 60},
            ],
        }
        assert await anext(events) == progress(0)
        library.steps.put_nowait(30)
        assert await anext(events) == progress(30)
        assert pulls.downloads() == (PullProgress("org/m", FILE, 30, 100),)
        library.steps.put_nowait("once more")
        message = {"model": "m", "event": "download_message", "data": {"message": "once more"}}
        assert await anext(events) == message
        for step in (100, None):
            library.steps.put_nowait(step)
        assert [event async for event in events] == [
            progress(100),
            {
                "model": "m",
                "event": "download_finished",
                "data": {"success": True, "model": "org/m", "aliases": ["m", "mm"], "size_bytes": 100},
            },
        ]
    assert pulls.downloads() == ()


async def test_closing_the_stream_stops_the_download(library: Library) -> None:
    pulls = pulls_of(library)
    async with aclosing(pulls.events("m", PLAN)) as events:
        await anext(events)
        await anext(events)
    assert library.cancelled and pulls.downloads() == ()


async def test_an_error_ends_the_stream_after_its_last_messages(library: Library) -> None:
    seen: list[str] = []
    pulls = pulls_of(library)
    for step in ("one", HubUnavailable("down")):
        library.steps.put_nowait(step)
    with pytest.raises(HubUnavailable):
        async for event in pulls.events("m", PLAN):
            seen.append(event["event"])
    assert seen == ["download_started", "download_message", "download_progress"]
    assert pulls.downloads() == ()


async def test_two_downloads_of_one_model_are_listed_once(library: Library) -> None:
    pulls = pulls_of(library)
    both = [asyncio.create_task(pulls.pull(name, PLAN)) for name in ("m", "org/m")]
    await library.running.wait()
    assert pulls.downloads() == (PullProgress("org/m", FILE, 0, 100),)
    for _ in both:
        library.steps.put_nowait(None)
    assert [done["model"] for done in await asyncio.gather(*both)] == ["org/m", "org/m"]
    assert pulls.downloads() == ()


async def test_background_downloads_end_in_the_log(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jan_serve")
    pulls = pulls_of(library)
    for end in (None, HubUnavailable("down")):
        pulls.begin("m", PLAN)
        [task] = (task for task in asyncio.all_tasks() if task.get_name() == "pull m")
        library.steps.put_nowait(end)
        await task
        assert not await pulls.stop("m"), "it has ended"
    assert caplog.messages == ["pulled org/m", "cannot pull m: down"]


async def test_a_background_download_is_stopped_by_the_name_of_its_request(library: Library) -> None:
    pulls = pulls_of(library)
    pulls.begin("m", PLAN)
    await library.running.wait()
    assert not await pulls.stop("org/m")
    assert len(pulls.downloads()) == 1
    assert await pulls.stop("m")
    assert library.cancelled and pulls.downloads() == ()
