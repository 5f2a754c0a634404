"""How many requests may be tried again: a share of all, so that retries cannot multiply an overload."""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 10
SHARE: Final = 0.2
ALWAYS: Final = 3


class RetryBudget:
    """Counts by the second, over the last ten seconds."""

    def __init__(self) -> None:
        self._second = [-1] * WINDOW_S
        self._requests = [0] * WINDOW_S
        self._retries = [0] * WINDOW_S

    def count(self, now: float) -> None:
        self._requests[self._slot(now)] += 1

    def take(self, now: float) -> bool:
        """Whether one more retry is allowed; it then counts."""
        slot = self._slot(now)
        recent = [index for index, second in enumerate(self._second) if second > int(now) - WINDOW_S]
        requests = sum(self._requests[index] for index in recent)
        if sum(self._retries[index] for index in recent) >= ALWAYS + SHARE * requests:
            return False
        self._retries[slot] += 1
        return True

    def _slot(self, now: float) -> int:
        second = int(now)
        slot = second % WINDOW_S
        if self._second[slot] != second:
            self._second[slot], self._requests[slot], self._retries[slot] = second, 0, 0
        return slot
