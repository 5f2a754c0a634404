"""Is a worker stuck? Pure: told what was sent and received and when, it names the stall, if there is one.

A stall is never guessed from silence of a stream alone: a long prompt is silent too. The worker's pulse (Pong) says
in which native call its engine thread is, and for how long; a worker that does not answer a ping at all is stopped.
Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from jan_serve.ipc.messages import Pong
from jan_serve.supervisor.limits import WorkerLimits

_MIN_DELAY_S: Final = 0.05


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker has to end. request_id: the request that it was sampling for, where that is known."""

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
        self._unanswered_since: float | None = None
        self._nonce = 0
        self._pong: Pong | None = None
        self._resumed_at = -math.inf

    @property
    def pong(self) -> Pong | None:
        """The last pulse."""
        return self._pong

    def progressed(self, now: float) -> None:
        """The load went on."""
        self._progress_at = now

    def ready(self, now: float) -> None:
        """The load is over."""
        self._loading = False
        self._progress_at = now

    def resumed(self, now: float) -> None:
        """This process stood still, and the worker most likely too: the machine slept, or both were stopped.

        No time before `now` counts against the worker. One that is stuck for good is found by the time from here on.
        """
        self._resumed_at = now
        self._progress_at = now
        if self._unanswered_since is not None:
            self._unanswered_since = now

    def next_nonce(self, now: float) -> int:
        """The nonce of a ping that is sent now."""
        self._nonce += 1
        if self._unanswered_since is None:
            self._unanswered_since = now
        return self._nonce

    def ponged(self, pong: Pong) -> None:
        """A pulse came. Only the answer to the last ping ends the silence."""
        self._pong = pong
        if pong.nonce == self._nonce:
            self._unanswered_since = None

    def resting(self) -> bool:
        """The last pulse was idle and no ping is unanswered: nothing to watch unless requests are open."""
        return self._unanswered_since is None and (self._pong is None or self._pong.phase == "idle")

    def stall(self, now: float, oldest_request_s: float = 0.0) -> Stall | None:
        """The stall, if any. oldest_request_s: for how long a request has been without its end."""
        if self._loading:
            seconds = now - self._progress_at
            return Stall(phase="loading", seconds=seconds) if seconds >= self._limits.load_s else None
        if self._unanswered_since is not None and now - self._unanswered_since >= self._limits.silent_s:
            return Stall(phase="silent", seconds=now - self._unanswered_since)
        pong = self._pong
        if pong is None:
            return None
        phase_s = min(pong.phase_s, now - self._resumed_at)
        if pong.phase == "idle":
            # Idle beside open requests for long: the worker lost them.
            lost_s = min(phase_s, oldest_request_s)
            return Stall(phase="idle", seconds=lost_s) if lost_s >= self._limits.other_s else None
        if phase_s >= self._limit(pong.phase):
            return Stall(phase=pong.phase, seconds=phase_s, request_id=pong.phase_id)
        return None

    def delay_s(self) -> float:
        """When to look again: at the next ping, or when the present phase would reach its limit, if that is sooner."""
        pong = self._pong
        if self._loading or pong is None or pong.phase == "idle":
            return self._limits.ping_s
        return max(min(self._limits.ping_s, self._limit(pong.phase) - pong.phase_s), _MIN_DELAY_S)

    def _limit(self, phase: str) -> float:
        limits = self._limits
        by_phase = {"decode": limits.decode_s, "embed": limits.decode_s, "sample": limits.sample_s}
        return by_phase.get(phase, limits.load_s if phase == "loading" else limits.other_s)
