"""One transfer for all who want the same file, until the last of them leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from jan_serve.errors import HubError
from jan_serve.store.hub.download import Download, DownloadWatcher, SharedDownloads

pytestmark = pytest.mark.anyio

FILE = Download("http://hub/a.gguf", "a.gguf", 20, "ab" * 32, Path("/models/a.gguf"))
NEWER = msgspec.structs.replace(FILE, sha256="cd" * 32)


class Watcher:
    def __init__(self) -> None:
        self.seen: list[int | str] = []

    def received(self, n_bytes: int) -> None:
        self.seen.append(n_bytes)

    def note(self, text: str) -> None:
        self.seen.append(text)


class Transfers:
    """Each transfer reports 10 bytes, then waits for `release`; a cancelled one waits for `cleaned`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.started = 0
        self.ended: list[str] = []
        self.running = asyncio.Event()
        self.release = asyncio.Event()
        self.cleaned = asyncio.Event()
        self.cleaned.set()
        self._error = error

    async def start(self, watcher: DownloadWatcher) -> None:
        self.started += 1
        watcher.received(10)
        self.running.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            await self.cleaned.wait()
            self.ended.append("cancelled")
            raise
        watcher.note("almost")
        if self._error is not None:
            raise self._error
        watcher.received(20)
        self.ended.append("done")


async def test_callers_for_one_file_share_its_transfer_and_later_ones_catch_up() -> None:
    shared, transfers = SharedDownloads(), Transfers()
    first, second, other = Watcher(), Watcher(), Watcher()
    async with asyncio.TaskGroup() as group:
        group.create_task(shared.join(FILE, first, transfers.start))
        await transfers.running.wait()
        group.create_task(shared.join(FILE, second, transfers.start))
        group.create_task(
            shared.join(msgspec.structs.replace(FILE, target=Path("/models/b.gguf")), other, transfers.start)
        )
        await asyncio.sleep(0)
        transfers.release.set()
    assert transfers.started == 2
    assert first.seen == second.seen == other.seen == [10, "almost", 20]
    await shared.join(FILE, first, transfers.start)
    assert transfers.started == 3, "a finished transfer is not joined"


async def test_every_caller_gets_the_error_and_the_next_one_starts_again() -> None:
    shared, transfers = SharedDownloads(), Transfers(HubError("broken"))
    callers = [asyncio.create_task(shared.join(FILE, Watcher(), transfers.start)) for _ in range(2)]
    await transfers.running.wait()
    transfers.release.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [str(result) for result in results] == ["broken", "broken"]
    with pytest.raises(HubError):
        await shared.join(FILE, Watcher(), transfers.start)
    assert transfers.started == 2


async def test_a_caller_that_leaves_does_not_end_the_transfer_of_the_others() -> None:
    shared, transfers = SharedDownloads(), Transfers()
    leaving, staying = Watcher(), Watcher()
    left = asyncio.create_task(shared.join(FILE, leaving, transfers.start))
    await transfers.running.wait()
    stayed = asyncio.create_task(shared.join(FILE, staying, transfers.start))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    transfers.release.set()
    await stayed
    assert transfers.ended == ["done"]
    assert (leaving.seen, staying.seen) == ([10], [10, "almost", 20])


async def test_the_last_caller_that_leaves_ends_the_transfer_and_waits_for_its_end() -> None:
    shared, transfers, again = SharedDownloads(), Transfers(), Transfers()
    transfers.cleaned.clear()
    caller = asyncio.create_task(shared.join(FILE, Watcher(), transfers.start))
    await transfers.running.wait()
    caller.cancel()
    await asyncio.sleep(0)
    late = asyncio.create_task(shared.join(FILE, Watcher(), again.start))
    await again.running.wait()
    assert not caller.done()
    transfers.cleaned.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert transfers.ended == ["cancelled"]
    later = asyncio.create_task(shared.join(FILE, Watcher(), again.start))
    await asyncio.sleep(0)
    again.release.set()
    await asyncio.gather(late, later)
    assert (transfers.started, again.started, again.ended) == (1, 1, ["done"])


async def test_a_caller_that_is_cancelled_again_still_waits_for_the_end() -> None:
    transfers, shared = Transfers(), SharedDownloads()
    transfers.cleaned.clear()
    caller = asyncio.create_task(shared.join(FILE, Watcher(), transfers.start))
    await transfers.running.wait()
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not caller.done()
    transfers.cleaned.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert transfers.ended == ["cancelled"]


async def test_other_content_for_the_same_target_waits_for_its_turn() -> None:
    shared, transfers, newer = SharedDownloads(), Transfers(HubError("broken")), Transfers()
    newer.release.set()
    first, waiting = Watcher(), Watcher()
    old = asyncio.create_task(shared.join(FILE, first, transfers.start))
    await transfers.running.wait()
    callers = [
        asyncio.create_task(shared.join(NEWER, watcher, newer.start)) for watcher in (waiting, Watcher())
    ]
    leaving = asyncio.create_task(shared.join(NEWER, Watcher(), newer.start))
    while not waiting.seen:
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (transfers.ended, newer.started) == ([], 0)
    transfers.release.set()
    await asyncio.gather(*callers)
    with pytest.raises(HubError, match="broken"):
        await old
    assert newer.started == 1
    assert first.seen == [10, "almost"]
    assert waiting.seen == ["a.gguf: another revision of it is being downloaded; waiting.", 10, "almost", 20]


async def test_other_content_waits_for_the_end_of_a_cancelled_transfer() -> None:
    shared, transfers, newer = SharedDownloads(), Transfers(), Transfers()
    transfers.cleaned.clear()
    caller = asyncio.create_task(shared.join(FILE, Watcher(), transfers.start))
    await transfers.running.wait()
    caller.cancel()
    await asyncio.sleep(0)
    watcher = Watcher()
    waiting = asyncio.create_task(shared.join(NEWER, watcher, newer.start))
    while not watcher.seen:
        await asyncio.sleep(0)
    assert newer.started == 0
    transfers.cleaned.set()
    newer.release.set()
    await waiting
    assert transfers.ended == ["cancelled"]
    await asyncio.gather(caller, return_exceptions=True)
