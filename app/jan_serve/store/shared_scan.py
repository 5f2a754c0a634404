"""One look at the disk for all who ask at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedScan(Generic[T]):
    """Scans one at a time: side by side, their threads take the interpreter from each other at every file.

    A call gets the result of a scan that began after it. Those that wait for the same scan share its result.
    Thread-safe.
    """

    def __init__(self, scan: Callable[[], T]) -> None:
        self._scan = scan
        self._order = itertools.count()
        self._lock = Lock()
        self._last: tuple[int, T] | None = None
        """When the last scan began, and its result."""

    def __call__(self) -> T:
        """Blocks. Raises as the scan, but not for another call's."""
        called = next(self._order)
        with self._lock:
            if self._last is not None and self._last[0] > called:
                return self._last[1]
            began = next(self._order)
            result = self._scan()
            self._last = began, result
            return result
