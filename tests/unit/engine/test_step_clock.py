"""Each part of a step is counted once, under the step's kind."""

from __future__ import annotations

from jan_serve.core.engine_stats import STEP_SECONDS, PartTimes, StepTimes
from jan_serve.engine.step_clock import StepClock
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


def test_what_does_not_happen_is_not_counted() -> None:
    now = TurnedClock()
    times = StepClock(now)
    times.begin()
    with times.part("join"):
        now.now += 1.0
    times.drop("join")
    with times.part("forward"):
        now.now += 1000.0
    times.end(prefills=False)
    times.begin()
    with times.part("forward"):
        now.now += 1.0
    times.fail(prefills=False)
    times.begin()
    times.end(prefills=False)
    found = times.times(prefills=False)
    assert (found.join, found.sampling, found.failed) == (PartTimes(), PartTimes(), 1)
    # Longer than the last bound.
    assert found.forward == in_bucket(1000.0, 1, 1000.0)
    assert sum(found.whole.counts) == 2
