"""One transfer for all callers of this process that want the same file. Other processes are kept out by a lock file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from jan_serve.store.hub.download import DownloadWatcher

Start = Callable[[DownloadWatcher], Awaitable[None]]


@dataclass(slots=True)
class _Shared:
    watchers: list[DownloadWatcher] = field(default_factory=list[DownloadWatcher])
    n_received: int = 0
    task: asyncio.Task[None] | None = None

    def received(self, n_bytes: int) -> None:
        self.n_received = n_bytes
        for watcher in self.watchers:
            watcher.received(n_bytes)

    def note(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.note(text)


class SharedDownloads:
    """Transfers under way by target. Used within one event loop."""

    def __init__(self) -> None:
        self._running: dict[Path, _Shared] = {}

    async def join(self, target: Path, watcher: DownloadWatcher, start: Start) -> None:
        """Wait for the transfer to `target`, which `start` does if nobody does it yet.

        Cancelling leaves it to the others who wait; with the last of them it ends, before this returns.
        """
        shared = self._running.get(target)
        if shared is None:
            shared = self._running[target] = _Shared()
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
                # Whoever asks from now on begins anew, rather than join what is ending.
                self._forget(target, shared)
                shared.task.cancel()
                await asyncio.wait([shared.task])

    async def _run(self, target: Path, shared: _Shared, start: Start) -> None:
        try:
            await start(shared)
        finally:
            self._forget(target, shared)

    def _forget(self, target: Path, shared: _Shared) -> None:
        if self._running.get(target) is shared:
            del self._running[target]
