"""Each part of a step is counted once, under the step's kind."""

from __future__ import annotations

from jan_serve.core.engine_stats import STEP_SECONDS, STEP_SIZES, PartTimes, StepTimes
from jan_serve.engine.stats import EngineCounters, PhaseClock, StepClock
from tests.support.clock import TurnedClock


def in_bucket(seconds: float, steps: int, total: float) -> PartTimes:
    counts = [0] * (len(STEP_SECONDS) + 1)
    counts[next((i for i, bound in enumerate(STEP_SECONDS) if seconds <= bound), len(STEP_SECONDS))] = steps
    return PartTimes(tuple(counts), total)


def test_parts_of_steps() -> None:
    now = TurnedClock()
    times = StepClock(now)
    for _ in range(2):
        times.begin()
        with times.part("join"):
            now.now += 1.0
        with times.part("forward"):
            now.now += 4.0
        with times.part("sampling"):
            now.now += 2.0
            for _ in range(2):
                with times.part("leave"):
                    now.now += 8.0
        times.end(prefills=True)
    found = times.times(prefills=True)
    assert found.whole == in_bucket(23.0, 2, 46.0)
    assert found.join == in_bucket(1.0, 2, 2.0)
    assert found.forward == in_bucket(4.0, 2, 8.0)
    assert found.sampling == in_bucket(2.0, 2, 4.0)
    assert found.leave == in_bucket(16.0, 2, 32.0)
    assert times.times(prefills=False) == StepTimes()


def test_steps_are_counted_up_to_each_bound() -> None:
    counters = EngineCounters()
    sizes = [1, 2, 8, 9, STEP_SIZES[-1], STEP_SIZES[-1] + 1]
    for size in sizes:
        counters.count_step(size)
    assert (counters.steps, counters.computed) == (len(sizes), sum(sizes))
    assert counters.step_sizes[:3] == [1, 2, 1]
    assert counters.step_sizes[-2:] == [1, 1]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_phase_counts_from_its_start_and_names_its_request() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    clock.now += 5
    phase.enter("sample", 42)
    clock.now += 1.5
    assert phase.read() == ("sample", 1.5, 42)
    phase.enter("idle")
    assert phase.read() == ("idle", 0.0, None)


def test_a_phase_that_begins_between_two_reads_of_the_clock_lasts_no_negative_time() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    phase.enter("decode")
    clock.now -= 1
    assert phase.read() == ("decode", 0.0, None)


def test_long_drafts_are_counted_together() -> None:
    counters = EngineCounters()
    for accepted in (0, 0, 3, 64, 1000):
        counters.count_turn(accepted)
    assert (counters.extra_tokens[0], counters.extra_tokens[3], counters.extra_tokens[-1]) == (2, 1, 2)
    assert sum(counters.extra_tokens) == 5
