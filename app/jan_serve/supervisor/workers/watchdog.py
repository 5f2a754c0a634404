"""Stall detection (no I/O, no clock): finds a stalled worker from the pings sent and pulses received, and their times.

A silent stream alone is no stall: a long prompt is silent too. The worker's pulse (Pong) reports the native call that
its engine thread is in, and for how long; a worker that does not answer a ping at all is stalled. Times are seconds of
a monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from jan_serve.ipc.messages import Pong
from jan_serve.supervisor.limits import WorkerLimits

_MIN_DELAY_S: Final = 0.05


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker must be ended. request_id: the request that it was sampling for, if known."""

    phase: str
    seconds: float
    request_id: int | None = None

    def __str__(self) -> str:
        return f"no progress for {self.seconds:.1f} s ({self.phase})"


class Watchdog:
    """The pulse of one worker."""

    def __init__(self, limits: WorkerLimits, now: float) -> None:
        self._limits = limits
        self._progress_at = now
        self._loading = True
        self._unanswered_since = math.inf
        self._nonce = 0
        self.pong: Pong | None = None
        self._resumed_at = -math.inf

    def progressed(self, now: float) -> None:
        self._progress_at = now

    def ready(self, now: float) -> None:
        self._loading = False
        self.pong = None  # the last one has the counters of an earlier moment of the load
        self._progress_at = now

    def resumed(self, now: float) -> None:
        """This process was suspended, and the worker most likely too: the machine slept, or both were stopped. No
        time before `now` counts against the worker; one that is really stuck is found by the time after it."""
        self._resumed_at = now
        self._progress_at = now
        if self.is_unanswered:
            self._unanswered_since = now

    def next_nonce(self, now: float) -> int:
        """The nonce for a ping sent now."""
        self._nonce += 1
        if not self.is_unanswered:
            self._unanswered_since = now
        return self._nonce

    def ponged(self, pong: Pong) -> None:
        """Only the answer to the last ping ends the silence."""
        self.pong = pong
        if pong.nonce == self._nonce:
            self._unanswered_since = math.inf

    @property
    def is_unanswered(self) -> bool:
        return self._unanswered_since < math.inf

    def resting(self) -> bool:
        """The last pulse was idle and every ping is answered: nothing to watch unless requests are open."""
        return not self.is_unanswered and (self.pong is None or self.pong.phase == "idle")

    def stall(self, now: float, oldest_request_s: float = 0.0) -> Stall | None:
        """oldest_request_s: age of the oldest open request."""
        if self._loading and now - self._progress_at >= self._limits.load_s:
            return Stall(phase="loading", seconds=now - self._progress_at)
        pong = self.pong
        is_started = pong is not None or not self._loading
        if is_started and now - self._unanswered_since >= self._limits.silent_s:
            return Stall(phase="silent", seconds=now - self._unanswered_since)
        if pong is None or self._loading:
            return None
        phase_s = min(pong.phase_s, now - self._resumed_at)
        if pong.phase == "idle":
            # Idle for long while requests are open: the worker lost them.
            lost_s = min(phase_s, oldest_request_s)
            return Stall(phase="idle", seconds=lost_s) if lost_s >= self._limits.other_s else None
        if phase_s >= self._limit(pong.phase):
            return Stall(phase=pong.phase, seconds=phase_s, request_id=pong.phase_id)
        return None

    def delay_s(self) -> float:
        """Seconds to the next check: the next ping, or the limit of the current phase if that is sooner."""
        pong = self.pong
        if self._loading or pong is None or pong.phase == "idle":
            return self._limits.ping_s
        return max(min(self._limits.ping_s, self._limit(pong.phase) - pong.phase_s), _MIN_DELAY_S)

    def _limit(self, phase: str) -> float:
        limits = self._limits
        match phase:
            case "decode" | "embed" | "tokenize":
                return limits.decode_s
            case "sample":
                return limits.sample_s
            case "encode":
                return limits.encode_s
            case _:
                return limits.load_s if phase == "loading" else limits.other_s
