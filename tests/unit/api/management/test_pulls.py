"""Progress of downloads for their clients and for the list of models; the test controls the downloads."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.api.management import pulls as pulls_module
from jan_serve.api.management.pulls import PullProgress, Pulls
from jan_serve.errors import HubUnavailable, JanServeError
from jan_serve.store.hub import download as download_module
from jan_serve.store.hub.download import Download, DownloadWatcher
from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller, PullPlan
from jan_serve.store.hub.references import HubReference
from jan_serve.store.hub.repository import HubFile, HubModel
from jan_serve.store.index import ModelIndex, ModelRecord, Source
from jan_serve.store.library import ModelLibrary
from jan_serve.store.resolve import ModelResolver
from tests.support.exploring import Draws, explore
from tests.unit.store.gguf_builder import GgufBytes, Tensor

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


RUNS: Final = int(os.environ.get("INTERLEAVINGS", "60"))
BATCH: Final = 20
CONTENTS: Final = tuple(
    GgufBytes(tensors=[Tensor("token_embd.weight", shape=(32 * rows,), data=bytes(34 * rows))]).build()
    for rows in (1, 2)
)
# Two repositories hold the same file, which is linked where it is there already.
REPOS: Final = {"o/a": 0, "o/b": 1, "o/c": 0}


def plan_of(repo: str) -> PullPlan:
    content = CONTENTS[REPOS[repo]]
    file = HubFile("m-Q8_0.gguf", len(content), hashlib.sha256(content).hexdigest())
    return PullPlan(repo, HubReference(repo), "abc", HubModel((file,)), None, (), None)


class Hub:
    """Transfers that arrive in pieces, fail, and take a moment to stop."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.running: set[Path] = set()
        self.fails = True


class Transfer:
    """In place of `download._Transfer`."""

    is_worthless = False
    n_resumed = 0

    def __init__(self, hub: Hub, file: Download, watcher: DownloadWatcher) -> None:
        self._hub, self._file, self._watcher = hub, file, watcher

    async def run(self) -> None:
        hub, file = self._hub, self._file
        assert file.target not in hub.running, f"{file.target} is transferred twice"
        hub.running.add(file.target)
        try:
            for part in range(4):
                await hub.draws.moment(2.0)
                self._watcher.received(file.size_bytes * part // 4)
                if hub.fails and hub.draws.random() < 0.05:
                    raise HubUnavailable("cut", retry_after=None)
            file.target.parent.mkdir(parents=True, exist_ok=True)
            file.target.write_bytes(next(each for each in CONTENTS if len(each) == file.size_bytes))
            self._watcher.received(file.size_bytes)
        except asyncio.CancelledError:
            await hub.draws.moment(1.0)
            raise
        finally:
            hub.running.discard(file.target)


class Callers:
    """What clients do to the pulls of a server."""

    def __init__(self, pulls: Pulls, draws: Draws) -> None:
        self._pulls, self._draws = pulls, draws
        self.outcomes: list[str] = []

    async def act(self) -> None:
        repo = self._draws.choice(sorted(REPOS))
        await self._draws.moment(8.0)
        try:
            match self._draws.randrange(5):
                case 0:
                    await self._watch(repo)
                case 1:
                    self._pulls.begin(repo, plan_of(repo))
                case 2:
                    await self._pulls.stop(repo)
                case _:
                    answer = await self._pulls.pull(repo, plan_of(repo))
                    assert answer["model"] == repo
        except JanServeError as error:
            self.outcomes.append(error.code)
        else:
            self.outcomes.append("done")

    async def _watch(self, repo: str) -> None:
        """Follow the events, perhaps not to the end."""
        async with aclosing(self._pulls.events(repo, plan_of(repo))) as events:
            kind = None
            async for event in events:
                kind = event["event"]
                if self._draws.random() < 0.1:
                    return
        assert kind == "download_finished"


async def scenario(draws: Draws, folder: Path, patch: pytest.MonkeyPatch) -> None:
    hub = Hub(draws)

    def transfer(
        _http: Any, _partial: Path, file: Download, watcher: DownloadWatcher, _status: Any
    ) -> Transfer:
        return Transfer(hub, file, watcher)

    patch.setattr(download_module, "_Transfer", transfer)
    puller = Puller(folder, HubAccess("http://127.0.0.1:9"))
    pulls = Pulls(ModelLibrary(ModelResolver(folder), folder, lambda: puller))
    callers = Callers(pulls, draws)
    tasks = [asyncio.create_task(callers.act()) for _ in range(draws.randint(1, 10))]
    for task in tasks:
        if draws.random() < 0.3:
            await draws.moment(4.0)
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    failures = [task.exception() for task in tasks if not task.cancelled()]
    assert failures == [None] * len(failures)
    for repo in REPOS:
        await pulls.stop(repo)
    assert pulls.downloads() == ()
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()
    hub.fails = False
    for repo in REPOS:
        await pulls.pull(repo, plan_of(repo))
        content = CONTENTS[REPOS[repo]]
        assert (folder / repo / "m-Q8_0.gguf").read_bytes() == content
    assert set(ModelIndex(folder).records()) == set(REPOS)


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_pulls_keep_their_promises_in_any_order(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + BATCH):
        folder = tmp_path / str(seed)
        explore(lambda draws, to=folder: scenario(draws, to, monkeypatch), seed, monkeypatch)
        shutil.rmtree(folder)
