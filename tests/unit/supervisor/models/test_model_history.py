"""Lost accelerators, and Retry-After of a full queue."""

from __future__ import annotations

import pytest

from jan_serve.core.models import DeviceInfo, ModelSource
from jan_serve.errors import InsufficientMemory, SettingsError
from jan_serve.supervisor.crash_backoff import CrashLog, RestartLimits, Verdict
from jan_serve.supervisor.models.model_history import ModelHistory
from tests.support.engine.fake_client import fake_facts


def device(name: str, kind: str) -> DeviceInfo:
    """A device as a worker finds it."""
    return DeviceInfo(name=name, description="", kind=kind, free_bytes=1, total_bytes=1)


SOURCE = ModelSource(name="m", path="m.gguf", revision=(1, 1))
CPU, GPU, OTHER = device("CPU", "cpu"), device("CUDA0", "gpu"), device("Vulkan0", "igpu")


@pytest.mark.parametrize(
    ("loads", "lost"),
    [
        ([[CPU]], ()),
        ([[CPU, GPU]], ()),
        ([[CPU, GPU], [CPU]], ("CUDA0",)),
        ([[CPU, GPU], [CPU], [CPU, GPU]], ()),
        ([[CPU, OTHER, GPU], [CPU], [CPU]], ("CUDA0", "Vulkan0")),
        ([[CPU], [CPU, GPU]], ()),
        ([[CPU, device("BLAS", "accel")], [CPU]], ()),
    ],
)
def test_accelerators_that_a_later_load_does_not_find_are_lost(
    loads: list[list[DeviceInfo]], lost: tuple[str, ...]
) -> None:
    history = ModelHistory(SOURCE, RestartLimits())
    for devices in loads:
        history.loaded(fake_facts(devices=tuple(devices)))
    assert history.lost_devices == lost
    assert history.loads_total == len(loads)


@pytest.mark.parametrize(
    ("waiting", "parallel", "mean_s", "expected"),
    [(1, 1, 0.01, 1.0), (10, 1, 2.0, 20.0), (10, 4, 2.0, 5.0), (1000, 1, 5.0, 60.0), (0, 0, 1.0, 1.0)],
)
def test_retry_after_is_the_time_the_queue_needs(
    waiting: int, parallel: int, mean_s: float, expected: float
) -> None:
    history = ModelHistory(SOURCE, RestartLimits())
    history.loaded(fake_facts(parallel=parallel))
    for _ in range(200):  # until the moving mean has converged
        history.served(mean_s)
    assert history.retry_after_s(waiting) == pytest.approx(expected)


def test_a_file_that_has_loaded_is_tried_again_for_about_a_minute() -> None:
    history, error = ModelHistory(SOURCE, RestartLimits()), InsufficientMemory("taken")
    assert history.load_failed(error, 0.0, 2) is None  # it has never loaded: the file may be wrong
    history.loaded(fake_facts())
    assert history.load_failed(SettingsError("require_accelerator: there is none"), 0.0, 2) is None
    now, pauses = 0.0, list[float]()
    while (pause_s := history.load_failed(error, now, 2)) is not None:
        assert history.verdict(now) == Verdict(pause_s)
        pauses.append(pause_s)
        now += pause_s
        assert history.verdict(now) == Verdict()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    history.nobody_waits()
    assert history.load_failed(error, now, 0) is None
    assert history.load_failed(error, now, 1) == 1.0


def test_a_model_that_never_crashed_may_start() -> None:
    assert CrashLog(RestartLimits()).verdict(0.0) == Verdict()


def test_pauses_are_one_two_four_seconds_and_then_stay() -> None:
    # 35 s apart: never three within a minute, and never a whole one without.
    log = CrashLog(RestartLimits())
    pauses: list[float] = []
    for crash in range(5):
        now = 35.0 * crash
        log.record(now)
        verdict = log.verdict(now)
        assert verdict.delay_s and not verdict.given_up
        pauses.append(verdict.delay_s)
        assert log.verdict(now + verdict.delay_s - 0.01).delay_s
        assert log.verdict(now + verdict.delay_s) == Verdict()
    assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_three_crashes_within_a_minute_fail_the_model_until_the_cool_down_is_over() -> None:
    log = CrashLog(RestartLimits())
    for now in (0.0, 29.0, 59.0):
        log.record(now)
    assert log.verdict(59.0) == Verdict(60.0, given_up=True)
    assert log.verdict(118.0) == Verdict(1.0, given_up=True)
    assert log.verdict(119.0) == Verdict()


def test_after_the_cool_down_the_count_starts_anew() -> None:
    log = CrashLog(RestartLimits(cooldown_s=10.0))
    for now in (0.0, 1.0, 2.0):
        log.record(now)
    assert log.verdict(12.0) == Verdict()
    log.record(13.0)
    assert log.verdict(13.0) == Verdict(1.0)


def test_three_crashes_in_more_than_a_minute_do_not_fail_the_model() -> None:
    log = CrashLog(RestartLimits())
    for now in (0.0, 30.0, 60.0):
        log.record(now)
    assert log.verdict(60.0) == Verdict(4.0)


def test_a_minute_without_a_crash_ends_the_row() -> None:
    log = CrashLog(RestartLimits())
    for now, pause_s in ((0.0, 1.0), (59.0, 2.0), (119.0, 1.0), (150.0, 2.0)):
        log.record(now)
        assert log.verdict(now) == Verdict(pause_s)
