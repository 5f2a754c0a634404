"""A circuit breaker: after failures a node gets no requests for a while, then a single one as a trial."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final, Literal

FAILURES_IN_A_ROW: Final = 3
WINDOW_S: Final = 30.0
WINDOW_MIN: Final = 10
WINDOW_SHARE: Final = 0.5
OPEN_S: Final = 5.0
MAX_OPEN_S: Final = 60.0
JITTER: Final = 0.2
_MAX_SEEN: Final = 64


class Breaker:
    """Closed, open until a time, or half-open: then one request at a time is tried.

    It opens after three failures in a row, or if at least half of ten or more requests of the last 30 s failed. Each
    failed trial doubles the pause, up to a minute; the jitter keeps several proxies apart.
    """

    __slots__ = ("_in_a_row", "_open_until", "_openings", "_rng", "_seen", "_trial", "_trials")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._in_a_row = 0
        self._seen: deque[tuple[float, bool]] = deque(maxlen=_MAX_SEEN)
        self._open_until: float | None = None
        self._openings = 0
        self._trials = 0
        self._trial = 0
        """The number of the trial that runs, from 1; 0 is none."""

    def state(self, now: float) -> Literal["closed", "open", "half-open"]:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half-open"

    def admits(self, now: float) -> bool:
        return self._open_until is None or (now >= self._open_until and not self._trial)

    def opens_in_s(self, now: float) -> float:
        """Until the next trial; 0 if a request may be tried now."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now)

    def begin(self) -> int:
        """A request was sent; the number of its trial, or 0. Whoever calls this calls one of the three below."""
        if self._open_until is None or self._trial:
            return 0
        self._trials += 1
        self._trial = self._trials
        return self._trial

    def succeed(self, now: float) -> None:
        if self._open_until is not None:
            self.reset()
        self._in_a_row = 0
        self._seen.append((now, True))

    def fail(self, now: float, trial: int = 0) -> None:
        """A request that began before the pause says nothing about the trial."""
        was_trial = self._ends_trial(trial) and self._open_until is not None and now >= self._open_until
        self._in_a_row += 1
        self._seen.append((now, False))
        if was_trial or (self._open_until is None and self._is_failing(now)):
            pause = min(MAX_OPEN_S, OPEN_S * 2**self._openings)
            self._open_until = now + pause * self._rng.uniform(1 - JITTER, 1 + JITTER)
            self._openings = min(self._openings + 1, 10)

    def leave(self, trial: int = 0) -> None:
        """The client left before the outcome was known."""
        self._ends_trial(trial)

    def _ends_trial(self, trial: int) -> bool:
        if not trial or trial != self._trial:
            return False
        self._trial = 0
        return True

    def reset(self) -> None:
        """Closed, as at the start."""
        self._in_a_row = self._openings = 0
        self._open_until = None
        self._trial = 0
        self._seen.clear()

    def _is_failing(self, now: float) -> bool:
        if self._in_a_row >= FAILURES_IN_A_ROW:
            return True
        recent = [ok for at, ok in self._seen if at > now - WINDOW_S]
        return len(recent) >= WINDOW_MIN and recent.count(False) >= WINDOW_SHARE * len(recent)
