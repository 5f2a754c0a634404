"""Starts the processes that every server needs before this process imports the server, which takes longer.
`begin` comes before the command line is read. The command that serves takes what has begun. The event loop runs
blocking work in daemon threads, which do not delay the end of the process."""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from jan_serve.helpers.kinds import RENDERING
from jan_serve.helpers.pool import HelperPool
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.supervisor.workers.spare_worker import SpareWorker

MAX_THREADS: Final = 16
CLOSING_S: Final = 2.0
"""Time for work that still runs when the server ends: enough to write what a disk takes."""

P = ParamSpec("P")
T = TypeVar("T")
_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(ThreadPoolExecutor):
    """A ThreadPoolExecutor, since asyncio accepts no other class; the interpreter would wait for its own threads.
    Work may be cut off at any time, as by a crash: every file that it writes is replaced atomically or retried."""

    def __init__(self) -> None:
        super().__init__(1)  # its thread is never started
        self._changed = threading.Condition()
        self._todo: deque[_Work] = deque()
        self._idle = 0
        self._running: set[threading.Thread] = set()
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._changed:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            work: _Work = (future, lambda: fn(*args, **kwargs))
            self._todo.append(work)
            if self._idle >= len(self._todo) or len(self._running) >= MAX_THREADS:
                self._changed.notify()
                return future
            thread = threading.Thread(target=self._work, name="blocking", daemon=True)
            self._running.add(thread)
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # the system has no thread left
            with self._changed:
                self._running.discard(thread)
                if not self._running:  # else one of them takes it
                    self._todo.remove(work)
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End as Executor does, but with `wait` block for `CLOSING_S` seconds at most. Queued work is cancelled."""
        with self._changed:
            self._ended = True
            while self._todo:
                self._todo.pop()[0].cancel()
            self._changed.notify_all()
            threads = list(self._running) if wait else []
        ends = time.monotonic() + CLOSING_S
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))
        super().shutdown(wait=False)

    def _work(self) -> None:
        while (work := self._next()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del work, future, call

    def _next(self) -> _Work | None:
        with self._changed:
            self._idle += 1
            while not self._todo and not self._ended:
                self._changed.wait()
            self._idle -= 1
            if self._todo:
                return self._todo.popleft()
            self._running.discard(threading.current_thread())
            return None


class HeadStart:
    """The server's event loop, and a worker and a template renderer on it. As a context, it ends all of them."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=event_loop_factory())
        self.runner.get_loop().set_default_executor(DaemonThreads())
        self.worker = SpareWorker()
        self.renderer = HelperPool(RENDERING)

    def start(self, *, huge_pages: bool = True) -> None:
        """Blocks until the processes are spawned. Those that run already stay. huge_pages: as the models have it."""
        self.runner.run(self._start(huge_pages))

    async def _start(self, huge_pages: bool) -> None:
        await self.worker.start(own_command("worker"), huge_pages=huge_pages)
        await self.renderer.start()

    async def _end(self) -> None:
        await self.worker.close()
        await self.renderer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.runner.run(self._end())
        finally:
            self.runner.close()


_begun: list[HeadStart] = []


def begin() -> None:
    """Start them with the default settings. They end with this process, unless they are taken."""
    head_start = HeadStart()
    _begun.append(head_start)
    atexit.register(_abandon)
    head_start.start()


def take() -> HeadStart:
    """The start that has begun, else one that has not started. The caller is its context."""
    return _begun.pop() if _begun else HeadStart()


def _abandon() -> None:
    while _begun:
        with _begun.pop():
            pass


def event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory that uvicorn would choose."""
    try:
        import uvloop
    except ImportError:  # it does not exist for Windows
        return None
    return uvloop.new_event_loop
