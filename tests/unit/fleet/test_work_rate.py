"""How fast a node is thought to be."""

from __future__ import annotations

import pytest

from jan_serve.fleet.work_rate import FIRST_TOKENS_PER_S, WorkRate


def observed(
    rate: WorkRate, tokens: float, seconds: float, times: int = 300, *, streamed: bool = True
) -> WorkRate:
    for _ in range(times):
        rate.observe(tokens, seconds, streamed=streamed)
    return rate


def test_a_rate_converges_to_what_is_observed() -> None:
    rate = WorkRate()
    assert rate.tokens_per_s == FIRST_TOKENS_PER_S and not rate.is_measured
    observed(rate, 1000, 4.0)
    assert rate.tokens_per_s == pytest.approx(250, rel=0.01)
    assert rate.is_measured


def test_short_prompts_weigh_little() -> None:
    rate = observed(WorkRate(), 1000, 1.0)
    rate.observe(1, 0.5, streamed=True)
    assert rate.tokens_per_s == pytest.approx(1000, rel=0.02)


def test_a_new_node_counts_as_somewhat_better_than_the_average() -> None:
    average = observed(WorkRate(), 1000, 2.0)
    assert WorkRate(average).tokens_per_s == pytest.approx(1.5 * average.tokens_per_s)
    assert WorkRate(average, 4.0).tokens_per_s == pytest.approx(6 * average.tokens_per_s)


def test_the_average_learns_from_all_nodes() -> None:
    average = WorkRate()
    observed(WorkRate(average), 1000, 1.0)
    before = average.tokens_per_s
    observed(WorkRate(average), 1000, 10.0)
    assert average.tokens_per_s < before


def test_whole_answers_count_until_the_first_streamed_one() -> None:
    rate = observed(WorkRate(), 100, 10.0, 5, streamed=False)
    assert rate.tokens_per_s < 100
    observed(rate, 1000, 1.0)
    learned = rate.tokens_per_s
    observed(rate, 100, 10.0, streamed=False)
    assert rate.tokens_per_s == learned


@pytest.mark.parametrize(("tokens", "seconds"), [(0.0, 0.0), (-5.0, -1.0), (1e9, 0.0)])
def test_impossible_observations_leave_a_positive_rate(tokens: float, seconds: float) -> None:
    rate = observed(WorkRate(), tokens, seconds, 1000)
    assert 0 < rate.tokens_per_s < float("inf")


@pytest.mark.parametrize("relative", [0.0, -1.0, 1e9])
def test_a_speed_of_any_size_is_bounded(relative: float) -> None:
    assert 0 < WorkRate(WorkRate(), relative).tokens_per_s <= 1.5e3 * FIRST_TOKENS_PER_S
