"""The machine slept: a worker that was suspended together with its server is not stalled."""

from __future__ import annotations

from typing import Literal

import pytest

from jan_serve.ipc.messages import Pong
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.watchdog import Stall, Watchdog

LIMITS = WorkerLimits(load_s=300, decode_s=120, sample_s=5, other_s=60, silent_s=30, ping_s=1)
HOUR = 3600.0


def watched(pong: Pong | None = None) -> Watchdog:
    """A ready worker with an unanswered ping, sent at 10 s."""
    watchdog = Watchdog(LIMITS, 0.0)
    watchdog.ready(0.0)
    if pong is not None:
        watchdog.ponged(pong)
    watchdog.next_nonce(10.0)
    return watchdog


def test_silence_counts_from_the_resume_on() -> None:
    watchdog = watched()
    assert watchdog.stall(HOUR) is not None
    watchdog.resumed(HOUR)
    assert watchdog.stall(HOUR + 29.9) is None
    assert watchdog.stall(HOUR + 30.0) == Stall(phase="silent", seconds=30.0)


@pytest.mark.parametrize(("phase", "limit_s"), [("decode", 120.0), ("sample", 5.0), ("other", 60.0)])
def test_phases_count_from_the_resume_on(phase: Literal["decode", "sample", "other"], limit_s: float) -> None:
    watchdog = Watchdog(LIMITS, 0.0)
    watchdog.ready(0.0)
    watchdog.resumed(HOUR)
    # The worker's clock ran on while it stood still.
    watchdog.ponged(Pong(nonce=watchdog.next_nonce(HOUR), phase=phase, phase_s=HOUR))
    assert watchdog.stall(HOUR + limit_s - 0.1) is None
    assert watchdog.stall(HOUR + limit_s) == Stall(phase=phase, seconds=limit_s)


def test_a_lost_request_counts_from_the_resume_on() -> None:
    watchdog = Watchdog(LIMITS, 0.0)
    watchdog.ready(0.0)
    watchdog.ponged(Pong(nonce=watchdog.next_nonce(0.0), phase="idle", phase_s=HOUR))
    watchdog.resumed(HOUR)
    assert watchdog.stall(HOUR + 59.0, oldest_request_s=HOUR) is None
    assert watchdog.stall(HOUR + 60.0, oldest_request_s=HOUR) is not None


def test_a_load_gets_its_time_anew() -> None:
    watchdog = Watchdog(LIMITS, 0.0)
    watchdog.resumed(HOUR)
    assert watchdog.stall(HOUR + 299.0) is None
    assert watchdog.stall(HOUR + 300.0) is not None
