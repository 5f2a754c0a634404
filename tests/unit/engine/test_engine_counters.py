"""Steps by their tokens, and turns by the draft tokens that were accepted."""

from __future__ import annotations

from jan_serve.core.engine_stats import STEP_SIZES
from jan_serve.engine.engine_counters import EngineCounters


def test_steps_are_counted_up_to_each_bound() -> None:
    counters = EngineCounters()
    sizes = [1, 2, 8, 9, STEP_SIZES[-1], STEP_SIZES[-1] + 1]
    for size in sizes:
        counters.count_step(size)
    assert (counters.steps, counters.computed) == (len(sizes), sum(sizes))
    assert counters.step_sizes[:3] == [1, 2, 1]
    assert counters.step_sizes[-2:] == [1, 1]


def test_long_drafts_are_counted_together() -> None:
    counters = EngineCounters()
    for accepted in (0, 0, 3, 64, 1000):
        counters.count_turn(accepted)
    assert (counters.extra_tokens[0], counters.extra_tokens[3], counters.extra_tokens[-1]) == (2, 1, 2)
    assert sum(counters.extra_tokens) == 5
