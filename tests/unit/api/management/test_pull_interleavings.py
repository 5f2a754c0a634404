"""Pulls under random interleavings: one transfer a file, nobody's transfer is stopped, every caller answered.

`INTERLEAVINGS=20000 pytest THIS_FILE` explores more seeds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.api.management.pulls import Pulls
from jan_serve.errors import HubUnavailable, JanServeError
from jan_serve.store.hub import pull as pull_module
from jan_serve.store.hub.download import Download, DownloadWatcher
from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller, PullPlan
from jan_serve.store.hub.references import HubReference
from jan_serve.store.hub.repository import HubFile, HubModel
from jan_serve.store.hub.shared_downloads import SharedDownloads, Start
from jan_serve.store.index import ModelIndex
from jan_serve.store.library import ModelLibrary
from jan_serve.store.resolve import ModelResolver
from tests.support.exploring import Draws, explore
from tests.unit.store.gguf_builder import GgufBytes, Tensor

RUNS: Final = int(os.environ.get("INTERLEAVINGS", "60"))
BATCH: Final = 20
CONTENTS: Final = tuple(
    GgufBytes(tensors=[Tensor("token_embd.weight", shape=(32 * rows,), data=bytes(34 * rows))]).build()
    for rows in (1, 2)
)
# Two repositories hold the same file, which is linked where it is there already.
_JOIN: Final = SharedDownloads.join
REPOS: Final = {"o/a": 0, "o/b": 1, "o/c": 0}


def plan_of(repo: str) -> PullPlan:
    content = CONTENTS[REPOS[repo]]
    file = HubFile("m-Q8_0.gguf", len(content), hashlib.sha256(content).hexdigest())
    return PullPlan(repo, HubReference(repo), "abc", HubModel((file,)), None, (), None)


class Hub:
    """In place of `download`: transfers that arrive in pieces, fail, and take a moment to stop."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self.waiting: dict[Path, list[asyncio.Task[Any]]] = {}
        """The callers of a transfer, by its target."""
        self._running: set[Path] = set()
        self.fails = True

    async def join(
        self, shared: SharedDownloads, file: Download, watcher: DownloadWatcher, start: Start
    ) -> None:
        """As SharedDownloads.join; it remembers the callers."""
        caller = asyncio.current_task()
        assert caller is not None
        callers = self.waiting.setdefault(file.target, [])
        callers.append(caller)
        try:
            await _JOIN(shared, file, watcher, start)
        finally:
            callers.remove(caller)

    async def download(
        self, _http: Any, _partials: Any, file: Download, watcher: DownloadWatcher, _status: Any
    ) -> None:
        assert file.target not in self._running, f"{file.target} is transferred twice"
        self._running.add(file.target)
        try:
            for part in range(4):
                await self._draws.moment(2.0)
                watcher.received(file.size_bytes * part // 4)
                if self.fails and self._draws.random() < 0.05:
                    raise HubUnavailable("cut", retry_after=None)
            file.target.parent.mkdir(parents=True, exist_ok=True)
            file.target.write_bytes(next(each for each in CONTENTS if len(each) == file.size_bytes))
            watcher.received(file.size_bytes)
        except asyncio.CancelledError:
            stay = [caller for caller in self.waiting[file.target] if not caller.cancelling()]
            assert not stay, f"{file.target} is stopped under a caller"
            self._running.discard(file.target)
            await self._draws.moment(1.0)
            raise
        finally:
            self._running.discard(file.target)


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
    patch.setattr(pull_module, "download", hub.download)

    async def join(shared: SharedDownloads, file: Download, watcher: DownloadWatcher, start: Start) -> None:
        await hub.join(shared, file, watcher, start)

    patch.setattr(SharedDownloads, "join", join)
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
