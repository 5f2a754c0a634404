"""An executor of daemon threads for blocking work: they do not delay the end of the process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

MAX_THREADS: Final = 16
CLOSING_S: Final = 2.0
"""For the work that still runs when the server ends: enough to write what a disk takes."""

P = ParamSpec("P")
T = TypeVar("T")
_Work = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(ThreadPoolExecutor):
    """A ThreadPoolExecutor, since asyncio accepts no other class; the interpreter would wait for its own threads.

    Work may be cut off at any time, as by a crash: every file that it writes is replaced atomically or retried.
    """

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
            self._todo.append((future, lambda: fn(*args, **kwargs)))
            if self._idle >= len(self._todo) or len(self._running) >= MAX_THREADS:
                self._changed.notify()
                return future
            thread = threading.Thread(target=self._work, name="blocking", daemon=True)
            self._running.add(thread)
        thread.start()
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
