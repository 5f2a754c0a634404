"""Scans that several threads ask for at the same time."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType

import pytest

from jan_serve.store import shared_scan
from jan_serve.store.shared_scan import SharedScan

PATIENCE_S = 30


class WatchedLock:
    """Tells of each thread that comes to it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.came = SimpleQueue[None]()

    def __enter__(self) -> None:
        self.came.put(None)
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class HeldScans:
    """Numbered scans; the first one waits to be let go."""

    def __init__(self, *, fails: bool = False) -> None:
        self.let_go = threading.Event()
        self._fails = fails
        self._numbers = itertools.count(1)

    def __call__(self) -> int:
        number = next(self._numbers)
        if number == 1:
            assert self.let_go.wait(PATIENCE_S)
            if self._fails:
                raise OSError("the disk is gone")
        return number


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> WatchedLock:
    watched = WatchedLock()
    monkeypatch.setattr(shared_scan, "Lock", lambda: watched)
    return watched


def test_each_call_scans_if_nobody_else_does() -> None:
    numbers = itertools.count(1)
    scan = SharedScan(lambda: next(numbers))
    assert [scan(), scan(), scan()] == [1, 2, 3]


@pytest.mark.parametrize("fails", [False, True])
def test_those_who_wait_share_the_next_scan_and_not_the_running_one(lock: WatchedLock, fails: bool) -> None:
    held = HeldScans(fails=fails)
    scan = SharedScan(held)
    with ThreadPoolExecutor(6) as threads:
        first = threads.submit(scan)
        lock.came.get(timeout=PATIENCE_S)
        waiting = [threads.submit(scan) for _ in range(5)]
        for _ in waiting:
            lock.came.get(timeout=PATIENCE_S)
        held.let_go.set()
        found = [each.result(PATIENCE_S) for each in waiting]
    assert found == [2] * 5, "the first scan began before their calls"
    if fails:
        with pytest.raises(OSError, match="the disk is gone"):
            first.result()
    else:
        assert first.result() == 1
    assert scan() == 3
