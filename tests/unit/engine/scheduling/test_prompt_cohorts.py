"""How many prompts end together."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.step_planner import Reading, cohort_size

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
    assert cohort_size(items, lambda streams: factor * two_cores(streams)) == expected
