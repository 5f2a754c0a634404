"""How many prompts end together."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.step_planner import LARGEST_GROUP, Reading, group_size

_MEASURED_S = (0.0, 0.026, 0.050, 0.077, 0.076, 0.113, 0.120, 0.135, 0.136)
_TOKEN_S = 0.0082


def two_cores(streams: int) -> float:
    return _MEASURED_S[streams] if streams < len(_MEASURED_S) else 0.017 * streams


@pytest.mark.parametrize(
    ("prompts", "answer", "expected"),
    [
        ([60] * 8, 48, 8),
        ([100] * 8, 64, 8),
        ([300] * 8, 64, 4),
        ([300] * 4, 64, 4),
        ([1000] * 8, 64, 1),  # reading takes so long that each answer is sooner alone
        ([300] * 8, 300, 8),  # decoding takes so long that it is shared
        ([300] * 8, float("inf"), 8),
        ([100, 1000], 64, 1),  # the short one does not wait for the long one
        ([300] * 8, 1, 1),  # nothing to decode together
        ([300], 64, 1),
        ([1] * 100, 64, 8),  # from eight on, rows cost the same
    ],
)
@pytest.mark.parametrize("factor", [0.01, 1.0, 7.0])
def test_prompts_end_together_where_shared_steps_repay_the_wait(
    prompts: list[int], answer: float, expected: int, factor: float
) -> None:
    """However fast the machine is."""
    items = [Reading(factor * _TOKEN_S * tokens, answer) for tokens in prompts]
    assert group_size(items, lambda streams: factor * two_cores(streams)) == expected


def test_where_rows_are_free_all_end_together() -> None:
    for prompts, expected in ((20, 20), (100, LARGEST_GROUP)):
        assert group_size([Reading(0.012, 64)] * prompts, lambda _streams: 0.010) == expected


def test_streams_that_cost_as_much_together_as_apart_are_not_gathered() -> None:
    assert group_size([Reading(2.4, 64)] * 8, lambda streams: 0.026 * streams) == 1


def test_of_groups_that_are_alike_those_that_end_first_are_taken() -> None:
    """One by one has the least sum of times, by a hundredth, and its last answer ends a twelfth later."""
    steps_s = (0.0, 0.0228, 0.0463, 0.0545, 0.0602, 0.0815, 0.0876, 0.0951, 0.1006)
    for tokens, expected in ((300, 8), (1200, 4), (1800, 1)):
        assert group_size([Reading(tokens * 0.0045, 64)] * 8, lambda streams: steps_s[streams]) == expected
