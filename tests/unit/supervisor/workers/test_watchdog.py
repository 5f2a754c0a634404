"""When a worker counts as stuck, by the clock of the test."""

from __future__ import annotations

from typing import Literal

import pytest

from jan_serve.ipc.messages import Pong
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.watchdog import Stall, Watchdog
from tests.support.engine.fake_script import Phase

LIMITS = WorkerLimits(load_s=300, decode_s=120, sample_s=5, other_s=60, silent_s=30, ping_s=1)


def ready() -> Watchdog:
    watchdog = Watchdog(LIMITS, 0.0)
    watchdog.ready(0.0)
    return watchdog


def test_a_load_that_makes_progress_is_no_stall_however_long_it_takes() -> None:
    watchdog = Watchdog(LIMITS, 0.0)
    for now in range(0, 3000, 299):
        assert watchdog.stall(float(now)) is None
        watchdog.progressed(float(now))


def test_a_load_without_progress_is_a_stall() -> None:
    watchdog = Watchdog(LIMITS, 0.0)
    watchdog.progressed(10.0)
    assert watchdog.stall(309.0) is None
    assert watchdog.stall(310.0) == Stall(phase="loading", seconds=300.0)


def test_a_worker_that_falls_silent_in_its_load_is_a_stall_once_it_has_started() -> None:
    watchdog = Watchdog(LIMITS, 0.0)
    first = watchdog.next_nonce(0.0)
    assert watchdog.stall(100.0) is None  # the process starts slowly
    watchdog.ponged(Pong(nonce=first, phase="loading", phase_s=0.0))
    assert watchdog.stall(100.0) is None
    watchdog.next_nonce(100.0)
    assert watchdog.stall(129.9) is None
    assert watchdog.stall(130.0) == Stall(phase="silent", seconds=30.0)


@pytest.mark.parametrize(
    ("phase", "limit_s"),
    [
        ("decode", 120.0),
        ("embed", 120.0),
        ("tokenize", 120.0),
        ("sample", 5.0),
        ("encode", 1200.0),
        ("other", 60.0),
    ],
)
def test_each_phase_has_its_limit(phase: Phase, limit_s: float) -> None:
    for seconds, expected in (
        (limit_s - 0.1, None),
        (limit_s, Stall(phase=phase, seconds=limit_s, request_id=7)),
    ):
        watchdog = ready()
        nonce = watchdog.next_nonce(1000.0)
        watchdog.ponged(Pong(nonce=nonce, phase=phase, phase_s=seconds, phase_id=7))
        assert watchdog.stall(1000.0) == expected


def test_an_idle_worker_is_never_a_stall_while_no_request_is_open() -> None:
    watchdog = ready()
    watchdog.ponged(Pong(nonce=watchdog.next_nonce(0.0), phase="idle", phase_s=10_000.0))
    assert watchdog.stall(10_000.0) is None


def test_idle_beside_a_request_that_waits_for_long_means_that_it_was_lost() -> None:
    watchdog = ready()
    watchdog.ponged(Pong(nonce=watchdog.next_nonce(0.0), phase="idle", phase_s=100.0))
    assert watchdog.stall(100.0, oldest_request_s=59.0) is None
    assert watchdog.stall(100.0, oldest_request_s=60.0) == Stall(phase="idle", seconds=60.0)


def test_a_ping_without_answer_is_a_stall() -> None:
    watchdog = ready()
    watchdog.next_nonce(10.0)
    watchdog.next_nonce(20.0)
    assert watchdog.stall(39.9) is None
    assert watchdog.stall(40.0) == Stall(phase="silent", seconds=30.0)


def test_only_the_answer_to_the_last_ping_ends_the_silence() -> None:
    watchdog = ready()
    first = watchdog.next_nonce(10.0)
    second = watchdog.next_nonce(20.0)
    watchdog.ponged(Pong(nonce=first, phase="idle", phase_s=0.0))
    assert not watchdog.resting()
    assert watchdog.stall(40.0) is not None
    watchdog.ponged(Pong(nonce=second, phase="idle", phase_s=0.0))
    assert watchdog.resting()
    assert watchdog.stall(40.0) is None


@pytest.mark.parametrize(
    ("phase", "phase_s", "expected"),
    [
        ("idle", 9.0, 1.0),
        ("decode", 3.0, 1.0),
        ("sample", 1.0, 1.0),
        ("sample", 4.7, 0.3),
        ("sample", 4.99, 0.05),
    ],
)
def test_the_next_look_comes_when_the_phase_would_be_over_its_limit(
    phase: Phase, phase_s: float, expected: float
) -> None:
    watchdog = ready()
    watchdog.ponged(Pong(nonce=watchdog.next_nonce(0.0), phase=phase, phase_s=phase_s))
    assert watchdog.delay_s() == pytest.approx(expected)


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
