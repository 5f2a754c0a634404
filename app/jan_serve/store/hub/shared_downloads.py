"""Shares one transfer among all callers in this process that request the same file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from jan_serve.store.hub.download import Download, DownloadWatcher

Start = Callable[[DownloadWatcher], Awaitable[None]]


class _Shared(msgspec.Struct):
    """sha256: of the file. is_ending: cancelled, and not over yet."""

    sha256: str
    watchers: list[DownloadWatcher] = msgspec.field(default_factory=list[DownloadWatcher])
    n_received: int = 0
    task: asyncio.Task[None] | None = None
    is_ending: bool = False

    def received(self, n_bytes: int) -> None:
        self.n_received = n_bytes
        for watcher in self.watchers:
            watcher.received(n_bytes)

    def note(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.note(text)


class SharedDownloads:
    """Running transfers by target. For one event loop."""

    def __init__(self) -> None:
        self._running: dict[Path, _Shared] = {}

    async def join(self, file: Download, watcher: DownloadWatcher, start: Start) -> None:
        """Wait for the transfer of `file`; `start` it if it is not running.

        A transfer of other content to the same target ends first. Cancelling the last waiting caller also cancels the
        transfer, and waits for its end.
        """
        target = file.target
        await self._other_content(file, watcher)
        shared = self._running.get(target)
        if shared is None or shared.is_ending:
            # Later callers start a new transfer rather than join the cancelled one.
            shared = self._running[target] = _Shared(file.sha256)
            shared.task = asyncio.ensure_future(self._run(target, shared, start))
        elif shared.n_received:
            watcher.received(shared.n_received)
        shared.watchers.append(watcher)
        assert shared.task is not None
        try:
            await asyncio.shield(shared.task)
        finally:
            shared.watchers.remove(watcher)
            if not shared.watchers and not shared.task.done():
                shared.is_ending = True
                shared.task.cancel()
                # The caller may be cancelled again meanwhile; the first cancellation is on its way already.
                while not shared.task.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait([shared.task])

    async def _other_content(self, file: Download, watcher: DownloadWatcher) -> None:
        """Wait until no transfer of other content to the target of `file` is running."""
        while (other := self._running.get(file.target)) is not None and other.sha256 != file.sha256:
            watcher.note(f"{file.name}: another revision of it is being downloaded; waiting.")
            assert other.task is not None
            await asyncio.wait([other.task])

    async def _run(self, target: Path, shared: _Shared, start: Start) -> None:
        try:
            await start(shared)
        finally:
            self._forget(target, shared)

    def _forget(self, target: Path, shared: _Shared) -> None:
        if self._running.get(target) is shared:
            del self._running[target]
