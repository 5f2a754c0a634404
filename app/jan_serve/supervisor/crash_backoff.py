"""The pauses of one model after crashes of its worker, and when it is given up. Times in seconds."""

from __future__ import annotations

import msgspec


class RestartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Restarts of one model after crashes.

    backoff_s: after the first, second … consecutive crash; the last one repeats. After max_crashes within window_s the
    model is failed for cooldown_s. A crash without another one in the window_s before it is the first of a new row.
    patience_s: a request waits at most for a back-off this long, and is rejected with Retry-After beyond it.
    """

    backoff_s: tuple[float, ...] = (1.0, 2.0, 4.0)
    max_crashes: int = 3
    window_s: float = 60.0
    cooldown_s: float = 60.0
    patience_s: float = 2.5


class Verdict(msgspec.Struct, frozen=True):
    """A model may start in `delay_s` seconds. given_up: it crashed too often; reject its requests until then."""

    delay_s: float = 0.0
    given_up: bool = False


class CrashLog:
    """The crashes of one model file."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._recent: list[float] = []
        self._consecutive = 0
        self._failed_until: float | None = None

    def record(self, now: float) -> None:
        limits = self._limits
        self._recent = [time for time in self._recent if now - time < limits.window_s]
        self._consecutive = self._consecutive + 1 if self._recent else 1
        self._recent.append(now)
        if len(self._recent) >= limits.max_crashes:
            self._failed_until = now + limits.cooldown_s

    def verdict(self, now: float) -> Verdict:
        """Whether the model may start. The end of a cool-down resets the count."""
        if self._failed_until is not None:
            if now < self._failed_until:
                return Verdict(self._failed_until - now, given_up=True)
            self._failed_until = None
            self._recent.clear()
            self._consecutive = 0
        if self._consecutive == 0:
            return Verdict()
        pauses = self._limits.backoff_s
        pause = pauses[min(self._consecutive, len(pauses)) - 1]
        return Verdict(max(0.0, self._recent[-1] + pause - now))
