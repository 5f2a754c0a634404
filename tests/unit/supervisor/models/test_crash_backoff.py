"""Back-off, crash window and cool-down, by the clock of the test."""

from __future__ import annotations

from jan_serve.supervisor.limits import RestartLimits
from jan_serve.supervisor.models.crash_backoff import (
    CrashLog,
    Pause,
    Refuse,
    Start,
)


def test_a_model_that_never_crashed_may_start() -> None:
    assert CrashLog(RestartLimits()).verdict(0.0) == Start()


def test_pauses_are_one_two_four_seconds_and_then_stay() -> None:
    # 35 s apart: never three within a minute, and never a whole one without.
    log = CrashLog(RestartLimits())
    pauses: list[float] = []
    for crash in range(5):
        now = 35.0 * crash
        log.record(now)
        verdict = log.verdict(now)
        assert isinstance(verdict, Pause)
        pauses.append(verdict.delay_s)
        assert isinstance(log.verdict(now + verdict.delay_s - 0.01), Pause)
        assert log.verdict(now + verdict.delay_s) == Start()
    assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_three_crashes_within_a_minute_fail_the_model_until_the_cool_down_is_over() -> None:
    log = CrashLog(RestartLimits())
    for now in (0.0, 29.0, 59.0):
        log.record(now)
    assert log.verdict(59.0) == Refuse(60.0)
    assert log.verdict(118.0) == Refuse(1.0)
    assert log.verdict(119.0) == Start()


def test_after_the_cool_down_the_count_starts_anew() -> None:
    log = CrashLog(RestartLimits(cooldown_s=10.0))
    for now in (0.0, 1.0, 2.0):
        log.record(now)
    assert log.verdict(12.0) == Start()
    log.record(13.0)
    assert log.verdict(13.0) == Pause(1.0)


def test_three_crashes_in_more_than_a_minute_do_not_fail_the_model() -> None:
    log = CrashLog(RestartLimits())
    for now in (0.0, 30.0, 60.0):
        log.record(now)
    assert log.verdict(60.0) == Pause(4.0)


def test_a_minute_without_a_crash_ends_the_row() -> None:
    log = CrashLog(RestartLimits())
    for now, pause_s in ((0.0, 1.0), (59.0, 2.0), (119.0, 1.0), (150.0, 2.0)):
        log.record(now)
        assert log.verdict(now) == Pause(pause_s)
