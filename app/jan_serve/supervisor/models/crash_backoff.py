"""Decisions of the model manager, pure: when to start a crashed model again, when refused requests may come back.

Times are seconds of any monotonic clock, given by the caller.
"""

from __future__ import annotations

import msgspec

from jan_serve.supervisor.limits import RestartLimits

MIN_RETRY_S = 1.0
MAX_RETRY_S = 60.0


class Start(msgspec.Struct, frozen=True):
    """The model may be started now."""


class Pause(msgspec.Struct, frozen=True):
    """Back-off: it may be started in `delay_s` seconds."""

    delay_s: float


class Refuse(msgspec.Struct, frozen=True):
    """It crashed too often: refuse its requests for `delay_s` seconds."""

    delay_s: float


Verdict = Start | Pause | Refuse


class CrashLog:
    """The crashes of one model file, and what follows from them."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._recent: list[float] = []
        self._in_a_row = 0
        self._failed_until: float | None = None

    def record(self, now: float, *, ready_for_s: float = 0.0) -> None:
        """A worker ended by itself after having been ready for `ready_for_s` (0: it never was)."""
        limits = self._limits
        self._recent = [time for time in self._recent if now - time < limits.window_s]
        self._recent.append(now)
        self._in_a_row = 1 if ready_for_s >= limits.window_s else self._in_a_row + 1
        if len(self._recent) >= limits.max_crashes:
            self._failed_until = now + limits.cooldown_s

    def verdict(self, now: float) -> Verdict:
        """May the model be started? Once a cool-down is over, the count starts anew."""
        if self._failed_until is not None:
            if now < self._failed_until:
                return Refuse(self._failed_until - now)
            self._failed_until = None
            self._recent.clear()
            self._in_a_row = 0
        if self._in_a_row == 0:
            return Start()
        pauses = self._limits.backoff_s
        pause = pauses[min(self._in_a_row, len(pauses)) - 1]
        delay = self._recent[-1] + pause - now
        return Pause(delay) if delay > 0 else Start()


def retry_after_s(waiting: int, parallel: int, mean_service_s: float) -> float:
    """When a refused request may come back: the time that `parallel` places need for those `waiting`, 1 to 60 s."""
    return min(max(waiting * mean_service_s / max(parallel, 1), MIN_RETRY_S), MAX_RETRY_S)
